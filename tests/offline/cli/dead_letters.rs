//! The commands `dead-letters` and `redrives`: their help, and what they say without a proxy.

use super::{dlx_proxy, stdout, text};

#[test]
fn help_of_dead_letters_reads_well() {
    insta::assert_snapshot!(stdout(&["dead-letters", "--help"]), @r#"
    Look at the dead letters in a queue, send them back or remove them, through a running proxy

    Usage: dlx-proxy dead-letters [OPTIONS] <COMMAND>

    Commands:
      queues    List the queues that dead letters go to, with what is known of them
      redrives  Show how far redrives and purges are; pause, resume or cancel one
      list      List the messages of a queue, the oldest first
      groups    Count the messages of a queue by where they died, why, and with which error
      show      Show one message: how it died, its properties, its headers and its body
      export    Write messages to standard output, one a line, as JSON; they stay in the queue
      import    Put messages that were exported into a queue
      redrive   Send messages back to the queues that they died in, or to another place
      purge     Remove messages for good
      help      Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "queues", "--help"]), @r#"
    List the queues that dead letters go to, with what is known of them

    Usage: dlx-proxy dead-letters queues [OPTIONS]

    Options:
      -h, --help  Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    The proxy knows the queues that its dead letters went to since it was started, and the targets of the queues that it
    knows; with a `management-url` also those behind named exchanges, how many messages each has, and, where it can be
    known, how long the oldest has been there. How the queues are handled in which messages die, `dlx-proxy queues` lists. A
    user sees the queues that the user may read. Exit code 1: there is no answer, and why.
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "list", "--help"]), @r#"
    List the messages of a queue, the oldest first

    Usage: dlx-proxy dead-letters list [OPTIONS] --queue <NAME>

    Options:
          --queue <NAME>         The queue
          --source <QUEUE>       Only messages that died in this queue
          --reason <REASON>      Only messages that died so: rejected, expired, maxlen or delivery_limit
          --error <LINE>         Only messages whose error begins with this line, as `groups` shows it
          --routing-key <KEY>    Only messages with this routing key
          --header <NAME=VALUE>  Only messages with this header; may be repeated
          --body <TEXT>          Only messages with this text in their body
          --older-than <TIME>    Only messages that died at least so long ago and were not redriven since, as in 90s, 15m,
                                 2h or 7d
          --id <ID>              Only this message, as `list` names it; may be repeated
          --limit <N>            How many messages to list at most [default: 100]
          --offset <N>           Behind so many others
      -h, --help                 Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    The proxy logs in to the broker as that user, who needs the right to read the queue. It takes the messages, the oldest
    first, and puts them back in their places. Where that counts as a failed delivery (quorum queues before RabbitMQ 4.3)
    the answer says so. Exit code 1: there is no answer, and why.
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "groups", "--help"]), @r#"
    Count the messages of a queue by where they died, why, and with which error

    Usage: dlx-proxy dead-letters groups [OPTIONS] --queue <NAME>

    Options:
          --queue <NAME>         The queue
          --source <QUEUE>       Only messages that died in this queue
          --reason <REASON>      Only messages that died so: rejected, expired, maxlen or delivery_limit
          --error <LINE>         Only messages whose error begins with this line, as `groups` shows it
          --routing-key <KEY>    Only messages with this routing key
          --header <NAME=VALUE>  Only messages with this header; may be repeated
          --body <TEXT>          Only messages with this text in their body
          --older-than <TIME>    Only messages that died at least so long ago and were not redriven since, as in 90s, 15m,
                                 2h or 7d
          --id <ID>              Only this message, as `list` names it; may be repeated
      -h, --help                 Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    The proxy logs in to the broker as that user, who needs the right to read the queue. It takes the messages, the oldest
    first, and puts them back in their places. Where that counts as a failed delivery (quorum queues before RabbitMQ 4.3)
    the answer says so. Exit code 1: there is no answer, and why.
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "show", "--help"]), @r#"
    Show one message: how it died, its properties, its headers and its body

    Usage: dlx-proxy dead-letters show [OPTIONS] --queue <NAME> <ID>

    Arguments:
      <ID>  The message, as `list` names it

    Options:
          --queue <NAME>  The queue
      -h, --help          Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    The proxy logs in to the broker as that user, who needs the right to read the queue. It takes the messages, the oldest
    first, and puts them back in their places. Where that counts as a failed delivery (quorum queues before RabbitMQ 4.3)
    the answer says so. Exit code 1: there is no answer, and why.
    "#);
}

#[test]
fn help_of_what_moves_dead_letters_reads_well() {
    insta::assert_snapshot!(stdout(&["dead-letters", "redrive", "--help"]), @r#"
    Send messages back to the queues that they died in, or to another place

    Usage: dlx-proxy dead-letters redrive [OPTIONS] --queue <NAME>

    Options:
          --queue <NAME>          The queue
          --to-queue <NAME>       Send them to this queue [default: each to the queue that it died in]
          --to-exchange <NAME>    Send them to this exchange; an empty name is the default exchange
          --to-routing-key <KEY>  ... with this routing key [default: each with its own]
          --history <HOW>         What they say of their deaths: keep it, or begin anew [default: keep]
          --source <QUEUE>        Only messages that died in this queue
          --reason <REASON>       Only messages that died so: rejected, expired, maxlen or delivery_limit
          --error <LINE>          Only messages whose error begins with this line, as `groups` shows it
          --routing-key <KEY>     Only messages with this routing key
          --header <NAME=VALUE>   Only messages with this header; may be repeated
          --body <TEXT>           Only messages with this text in their body
          --older-than <TIME>     Only messages that died at least so long ago and were not redriven since, as in 90s, 15m,
                                  2h or 7d
          --id <ID>               Only this message, as `list` names it; may be repeated
          --limit <N>             How many messages to move at most; the oldest go first
          --rate <N>              How many messages to move in a second at most
          --dry-run               Only say how many messages are meant
          --approve               Do not ask
          --no-wait               Only begin: `dlx-proxy dead-letters redrives` tells the rest
      -h, --help                  Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    On a terminal the command looks first, says how many messages are meant, and asks. Elsewhere, and with
    --non-interactive, it wants --approve. Then it shows how far the proxy is. Ctrl-C ends only that (exit code 130): the
    proxy goes on, until `dlx-proxy dead-letters redrives cancel`.

    Messages that come after the beginning are not meant. One that cannot go stays where it is.

    Exit codes: 0 all that were meant have gone; 3 some stay, or it was cancelled; 65 it failed, or none of those that were
    meant has gone; 1 there is no answer, and why, or nobody said yes; 64 something has to be typed otherwise, or --approve
    is missing.
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "purge", "--help"]), @r#"
    Remove messages for good

    Usage: dlx-proxy dead-letters purge [OPTIONS] --queue <NAME>

    Options:
          --queue <NAME>         The queue
          --source <QUEUE>       Only messages that died in this queue
          --reason <REASON>      Only messages that died so: rejected, expired, maxlen or delivery_limit
          --error <LINE>         Only messages whose error begins with this line, as `groups` shows it
          --routing-key <KEY>    Only messages with this routing key
          --header <NAME=VALUE>  Only messages with this header; may be repeated
          --body <TEXT>          Only messages with this text in their body
          --older-than <TIME>    Only messages that died at least so long ago and were not redriven since, as in 90s, 15m,
                                 2h or 7d
          --id <ID>              Only this message, as `list` names it; may be repeated
          --limit <N>            How many messages to move at most; the oldest go first
          --rate <N>             How many messages to move in a second at most
          --dry-run              Only say how many messages are meant
          --approve              Do not ask
          --no-wait              Only begin: `dlx-proxy dead-letters redrives` tells the rest
      -h, --help                 Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    On a terminal the command looks first, says how many messages are meant, and asks. Elsewhere, and with
    --non-interactive, it wants --approve. Then it shows how far the proxy is. Ctrl-C ends only that (exit code 130): the
    proxy goes on, until `dlx-proxy dead-letters redrives cancel`.

    Messages that come after the beginning are not meant. One that cannot go stays where it is.

    Exit codes: 0 all that were meant have gone; 3 some stay, or it was cancelled; 65 it failed, or none of those that were
    meant has gone; 1 there is no answer, and why, or nobody said yes; 64 something has to be typed otherwise, or --approve
    is missing.
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "redrives", "--help"]), @r#"
    Show how far redrives and purges are; pause, resume or cancel one

    Usage: dlx-proxy dead-letters redrives [OPTIONS] <COMMAND>

    Commands:
      list    List them, the newest first
      show    Show one: what it does, how far it is, what stays and why
      pause   Hold one up; what it has looked at and not moved, others do not see meanwhile
      resume  Let one go on that was paused
      cancel  End one; what has gone has gone, the rest stays where it is
      help    Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "redrives", "list", "--help"]), @r#"
    List them, the newest first

    Usage: dlx-proxy dead-letters redrives list [OPTIONS]

    Options:
      -h, --help  Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    The proxy knows those that are at work and the last 100 that have ended, until it ends itself. A user sees those of the
    queues that the user may read. Exit code 1: there is no answer, and why.
    "#);
    insta::assert_snapshot!(stdout(&["dead-letters", "redrives", "cancel", "--help"]), @r#"
    End one; what has gone has gone, the rest stays where it is

    Usage: dlx-proxy dead-letters redrives cancel [OPTIONS] <ID>

    Arguments:
      <ID>  Its number, as `list` names it

    Options:
      -h, --help  Print help

    Options of each of these commands:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
          --username <NAME>       A user of the broker [env: DLX_PROXY_USERNAME] [default: guest]
          --password <TEXT>       The user's password [env: DLX_PROXY_PASSWORD] [default: guest]
          --vhost <NAME>          The vhost [default: /]
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON

    The proxy knows those that are at work and the last 100 that have ended, until it ends itself. A user sees those of the
    queues that the user may read. Exit code 1: there is no answer, and why.
    "#);
}

#[test]
fn nothing_is_moved_without_a_yes() {
    for command in ["redrive", "purge"] {
        // A port that nobody is given by chance: it is not even asked.
        let words = [
            "dead-letters",
            command,
            "--queue",
            "q",
            "--admin",
            "127.0.0.1:1",
        ];
        let output = dlx_proxy(&words);
        assert_eq!(output.status.code(), Some(64), "{command}");
        assert_eq!(
            text(output.stderr),
            "dlx-proxy: this moves messages, and nobody can be asked here: add --approve, or --dry-run to only count them\n"
        );
        for more in ["--approve", "--dry-run"] {
            let output = dlx_proxy(&[&words[..], &[more]].concat());
            assert_eq!(output.status.code(), Some(1), "{command} {more}");
        }
    }
}

#[test]
fn what_cannot_be_typed_has_the_exit_code_of_mistakes() {
    for words in [
        &["dead-letters", "redrive"][..],
        &["dead-letters", "redrives", "cancel"],
        &["--no-such-flag"],
    ] {
        let output = dlx_proxy(words);
        assert_eq!(output.status.code(), Some(64), "{words:?}");
        assert!(
            text(output.stderr).contains("Usage: dlx-proxy"),
            "{words:?}"
        );
    }
}

#[test]
fn a_reason_that_there_is_not_is_refused_with_those_that_there_are() {
    let words = ["--queue", "q", "--admin", "127.0.0.1:1", "--reason"];
    for command in ["list", "groups", "export", "redrive", "purge"] {
        let output = dlx_proxy(&[&["dead-letters", command], &words[..], &["rejcted"]].concat());
        assert_eq!(output.status.code(), Some(64), "{command}");
        let said = text(output.stderr);
        for words in ["rejected, expired, maxlen, delivery_limit", "similar"] {
            assert!(said.contains(words), "{command}: {said}");
        }
    }
}

#[test]
fn a_proxy_that_is_not_there_is_named() {
    let address = "127.0.0.1:1"; // a port that nobody is given by chance
    let output = dlx_proxy(&["dead-letters", "groups", "--queue", "q", "--admin", address]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    let expected = format!("dlx-proxy: no answer from {address}: ");
    assert!(said.starts_with(&expected), "{said}");
}
