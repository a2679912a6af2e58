//! The help, as a terminal of 120 columns shows it.

use super::stdout;

#[test]
fn that_of_the_program_reads_well() {
    insta::assert_snapshot!(stdout(&["--help"]), @r#"
    A sidecar for RabbitMQ that takes over dead-lettering.

    AMQP 0-9-1 clients connect to it instead of to the broker. All they do passes as if it were not there, but dead letters
    are the proxy's: it publishes them with confirms, parks what nothing routes, and acknowledges a rejected message only
    when its dead letter is confirmed.

    Usage: dlx-proxy <COMMAND>

    Commands:
      run           Run the proxy
      config        Check the settings, or print the defaults
      completions   Print what makes a shell complete the commands and options of this program
      man           Print the manual page of this program
      doctor        Examine the broker, the permissions of users and this machine, and say what to change (exit code 64)
      demo          Let three messages die through a proxy, show their dead letters, and check them
      healthcheck   Ask a running proxy whether it is ready (exit code 0 or 1)
      queues        List the queues with dead letters or retries: how the proxy handles them, why, and what to do about it
      dead-letters  Look at the dead letters in a queue, send them back or remove them, through a running proxy
      retries       Show what waits for a retry, let it go now, or remove it
      help          Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Examples:
      dlx-proxy run --upstream amqp://proxy:secret@rabbit    proxy on 127.0.0.1:5673
      dlx-proxy config default > dlx-proxy.toml              every setting, explained
      dlx-proxy config check --config dlx-proxy.toml         what is in force, or every mistake
      dlx-proxy doctor --config dlx-proxy.toml               what to change at the broker
      dlx-proxy demo --url amqp://guest:guest@127.0.0.1:5673 three dead letters, checked
      dlx-proxy queues                                       which queues it handles, wholly or in part, and why
      dlx-proxy dead-letters groups --queue dead             dead letters of a queue, by source, reason and error
      dlx-proxy dead-letters redrive --queue dead            send them back to the queues that they died in
      dlx-proxy retries list --delay 1000                    what waits for a retry, and until when

    A setting is taken from a flag, else from the environment (DLX_PROXY_LISTEN, DLX_PROXY_RETAINED_BYTES, …), else from the
    file, else from the defaults.
    "#);
}

#[test]
fn that_of_each_command_reads_well() {
    insta::assert_snapshot!(stdout(&["config", "check", "--help"]), @r#"
    Print the settings in force, passwords hidden; or every mistake in them (exit code 64)

    Usage: dlx-proxy config check [OPTIONS]

    Options:
          --config <FILE>        TOML file of settings [env: DLX_PROXY_CONFIG]
          --upstream <URL>       The broker, and the user of the proxy's own connections [default:
                                 amqp://guest:guest@127.0.0.1:5672]
          --listen <ADDR>        Where AMQP clients connect; port 0 takes a free one [default: 127.0.0.1:5673]
          --admin <ADDR>         Where /healthz, /readyz and /metrics are served [default: 127.0.0.1:15673]
          --mode <MODE>          full: all dead letters; rejects-only: those of rejects; off: none [default: full]
          --log-format <FORMAT>  text or json [default: text]
          --log-level <LEVEL>    error, warn, info, debug or trace [default: info]
      -h, --help                 Print help
    "#);
    insta::assert_snapshot!(stdout(&["demo", "--help"]), @r#"
    Let three messages die through a proxy, show their dead letters, and check them

    Usage: dlx-proxy demo [OPTIONS]

    Options:
          --url <URL>        The proxy (or, to compare, the broker itself); its user must be allowed to declare, in the
                             URL's vhost [default: amqp://guest:guest@127.0.0.1:5673]
          --output <FORM>    How to print it: table or json [default: table]
          --non-interactive  For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>  Only these columns, in this order; the names are those of the JSON
      -h, --help             Print help
    "#);
    insta::assert_snapshot!(stdout(&["healthcheck", "--help"]), @r#"
    Ask a running proxy whether it is ready (exit code 0 or 1)

    Usage: dlx-proxy healthcheck [OPTIONS]

    Options:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --admin <ADDR>          Admin HOST:PORT, or with TLS https://HOST:PORT [default: 127.0.0.1:15673]
          --admin-ca-file <FILE>  With TLS: who signs its certificate, if not one whom the system trusts [env:
                                  DLX_PROXY_ADMIN_CA_FILE]
      -h, --help                  Print help
    "#);
}

#[test]
fn that_of_the_doctor_reads_well() {
    insta::assert_snapshot!(stdout(&["doctor", "--help"]), @r#"
    Examine the broker, the permissions of users and this machine, and say what to change (exit code 64)

    Usage: dlx-proxy doctor [OPTIONS]

    Options:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --upstream <URL>        The broker, and the user who asks it [default: amqp://guest:guest@127.0.0.1:5672]
          --management-url <URL>  RabbitMQ's management API, for what AMQP does not tell: http://user:password@host:15672
          --vhost <NAME>          Only this vhost; may be repeated [default: those of the settings]
          --username <NAME>       A user of the broker as whom clients connect: examine what this user may do, too [env:
                                  DLX_PROXY_USERNAME]
          --password <TEXT>       The password of that user [env: DLX_PROXY_PASSWORD]
          --client-user <NAME>    A user of the broker as whom clients connect: print the command that adds what clients of
                                  the proxy need to what this user may do. It takes a management-url with an administrator
          --output <FORM>         How to print it: table or json [default: table]
      -h, --help                  Print help

    It reads the settings of the proxy, and asks the broker as the proxy's user, by requests that change nothing. Exit code
    0: nothing has to be changed; 64: there are problems, or mistakes in the settings.
    "#);
}

#[test]
fn that_of_retries_reads_well() {
    insta::assert_snapshot!(stdout(&["retries", "--help"]), @r#"
    Show what waits for a retry, let it go now, or remove it

    Usage: dlx-proxy retries <COMMAND>

    Commands:
      list     Show how many messages wait, in which delay queues, for which queues, and until when
      release  Let messages go now that wait for a retry: they come back to their queues as soon as a proxy is there
      purge    Remove the messages of a queue that wait for a retry: they do not come back
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help
    "#);
    insta::assert_snapshot!(stdout(&["retries", "list", "--help"]), @r#"
    Show how many messages wait, in which delay queues, for which queues, and until when

    Usage: dlx-proxy retries list [OPTIONS]

    Options:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --upstream <URL>        The broker, and the user who asks it [default: amqp://guest:guest@127.0.0.1:5672]
          --management-url <URL>  RabbitMQ's management API, for what AMQP does not tell: http://user:password@host:15672
          --vhost <NAME>          Only this vhost; may be repeated [default: those of the settings]
          --delay <MS>            Only the delay queue of so many milliseconds; may be repeated. Without a management URL it
                                  is needed
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON
          --messages <N>          Look at the first N messages of each delay queue, to say for which queues they wait; 0: at
                                  none [default: 1000]
      -h, --help                  Print help

    No proxy has to run. WAITING are messages that wait, LEAVING those whose time is over and that the broker has not moved
    into the intake queue yet (the management API knows them, up to 5 s late). OVERDUE are messages that wait though they
    should be back by now.

    To look at a message is to get it and to put it back, in its place. It counts as delivered, which means nothing in a
    delay queue.
    "#);
    insta::assert_snapshot!(stdout(&["retries", "release", "--help"]), @r#"
    Let messages go now that wait for a retry: they come back to their queues as soon as a proxy is there

    Usage: dlx-proxy retries release [OPTIONS]

    Options:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --upstream <URL>        The broker, and the user who asks it [default: amqp://guest:guest@127.0.0.1:5672]
          --management-url <URL>  RabbitMQ's management API, for what AMQP does not tell: http://user:password@host:15672
          --vhost <NAME>          Only this vhost; may be repeated [default: those of the settings]
          --delay <MS>            Only the delay queue of so many milliseconds; may be repeated. Without a management URL it
                                  is needed
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON
          --queue <NAME>          Only messages that come back to this queue
      -h, --help                  Print help

    What is there when the command begins is released; what comes meanwhile stays. The broker itself moves each message into
    the intake queue, and nothing is lost if this command is killed. If no proxy runs, what was released waits there. The
    messages of other queues are put back in their places at the end, so that some may come back late by the time that the
    command takes.
    "#);
    insta::assert_snapshot!(stdout(&["retries", "purge", "--help"]), @r#"
    Remove the messages of a queue that wait for a retry: they do not come back

    Usage: dlx-proxy retries purge [OPTIONS] --queue <NAME>

    Options:
          --config <FILE>         TOML file of settings [env: DLX_PROXY_CONFIG]
          --upstream <URL>        The broker, and the user who asks it [default: amqp://guest:guest@127.0.0.1:5672]
          --management-url <URL>  RabbitMQ's management API, for what AMQP does not tell: http://user:password@host:15672
          --vhost <NAME>          Only this vhost; may be repeated [default: those of the settings]
          --delay <MS>            Only the delay queue of so many milliseconds; may be repeated. Without a management URL it
                                  is needed
          --output <FORM>         How to print it: table or json [default: table]
          --non-interactive       For scripts: tables without a heading, their cells divided by tabs
          --columns <NAMES>       Only these columns, in this order; the names are those of the JSON
          --queue <NAME>          The queue to which the messages would come back
      -h, --help                  Print help

    What is there when the command begins is removed; what comes meanwhile stays. `queue.purge` and `queue.delete` do not
    reach these messages: they wait in the delay queues, and would come back. What has left a delay queue already comes back
    all the same.
    "#);
}
