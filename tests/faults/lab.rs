//! A RabbitMQ node that belongs to one worker: it may be killed, stopped, paused and alarmed.

use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::client::Client;
use super::ctl;
use super::door::Door;
use super::environment::by_version;
use super::running::signal;

/// What went wrong, in words.
pub(crate) type Fallible<T> = Result<T, String>;

/// After which something counts as never happening. Generous: a machine may be busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    pub version: String,
    dir: PathBuf,
    pub address: SocketAddr,
    door: Door,
}

/// Waits for something that must come.
pub(crate) async fn within<T>(
    what: impl Display,
    coming: impl Future<Output = Fallible<T>>,
) -> Fallible<T> {
    match tokio::time::timeout(DEADLINE, coming).await {
        Ok(came) => came.map_err(|problem| format!("{what}: {problem}")),
        Err(_) => Err(format!("not within {DEADLINE:?}: {what}")),
    }
}

/// Asks until the answer is yes.
pub(crate) async fn until(what: impl Display, met: impl AsyncFnMut() -> bool) -> Fallible<()> {
    until_for(DEADLINE, what, met).await
}

/// The same with another deadline.
pub(crate) async fn until_for(
    deadline: Duration,
    what: impl Display,
    mut met: impl AsyncFnMut() -> bool,
) -> Fallible<()> {
    let end = Instant::now() + deadline;
    while !met().await {
        if Instant::now() > end {
            return Err(format!("not within {deadline:?}: {what}"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

// === impl Node ===

impl Node {
    /// Those that the environment gives us for good.
    pub(crate) fn all() -> Fallible<Vec<Node>> {
        let wanted = std::env::var("DLX_FAULTS_BROKER").unwrap_or_default();
        let pairs = by_version("DLX_FAULTS_NODES", ';').into_iter();
        let pairs = pairs.filter(|(version, _)| version.starts_with(&wanted));
        let nodes: Fallible<Vec<Node>> = pairs
            .map(|(version, dir)| {
                let mut node = Node {
                    version,
                    door: Door::new(vec![format!("{dir}/ctl")]),
                    dir: dir.into(),
                    address: SocketAddr::from(([127, 0, 0, 1], 0)),
                };
                let port = node.env("AMQP_PORT")?.parse();
                node.address
                    .set_port(port.map_err(|error| format!("{error}"))?);
                Ok(node)
            })
            .collect();
        match nodes {
            Ok(nodes) if nodes.is_empty() => Err("\
these tests kill RabbitMQ nodes: run `make faults`, or give some that nobody else uses, started by tests/lab/rabbit.sh, as
  DLX_FAULTS_NODES=\"3.10.8=DIR;4.3.6=DIR\""
                .to_owned()),
            nodes => nodes,
        }
    }

    /// Whether a queue can be neither durable nor exclusive there (S7.8).
    pub(crate) fn has_transient_queues(&self) -> bool {
        let numbers = self
            .version
            .split('.')
            .map_while(|it| it.parse::<u32>().ok());
        numbers.lt([4, 3])
    }

    /// A value of the node's own notes.
    fn env(&self, name: &str) -> Fallible<String> {
        let notes = self.dir.join("node.env");
        let text =
            std::fs::read_to_string(&notes).map_err(|error| format!("{notes:?}: {error}"))?;
        let values = text.lines().filter_map(|line| line.split_once('='));
        let value = values.into_iter().find(|(key, _)| *key == name);
        value
            .map(|(_, value)| value.to_owned())
            .ok_or(format!("no {name} in {notes:?}"))
    }

    /// A client of the node itself.
    pub(crate) async fn client(&self, vhost: &str) -> Fallible<Client> {
        Client::open(self.address, vhost, "direct", DEADLINE).await
    }

    // --- its life

    pub(crate) async fn kill(&self) -> Fallible<()> {
        self.rabbit(&["stop", "--keep", "--now"]).await
    }

    /// In order.
    pub(crate) async fn stop(&self) -> Fallible<()> {
        self.rabbit(&["stop", "--keep"]).await
    }

    pub(crate) async fn start(&self) -> Fallible<()> {
        self.rabbit(&["start"]).await
    }

    pub(crate) fn signal(&self, name: &str) -> Fallible<()> {
        let process = self.env("NODE_PID")?.parse();
        signal(process.map_err(|error| format!("NODE_PID: {error}"))?, name)
    }

    async fn rabbit(&self, words: &[&str]) -> Fallible<()> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/rabbit.sh");
        let mut rabbit = Command::new(script);
        rabbit
            .args(&words[..1])
            .arg("--dir")
            .arg(&self.dir)
            .args(&words[1..]);
        ctl::run(rabbit).await.map(|_| ())
    }

    /// What the node knows of its queues and bindings reaches the disk: RabbitMQ writes it a second or two later, so that a kill loses queues that
    /// were declared just before, with all that is in them. That is not what is looked at here.
    pub(crate) async fn settle(&self) -> Fallible<()> {
        let program = "[dets:sync(Table) || Table <- dets:all()], catch mnesia:sync_log(), ok.";
        self.eval(program).await.map(|_| ())
    }

    // --- what an operator does

    /// Evaluates Erlang in the node.
    pub(crate) async fn eval(&self, program: &str) -> Fallible<String> {
        within("the node's door", self.door.eval(program)).await
    }

    /// With all rights for these users; one that a failed round has left is emptied.
    pub(crate) async fn make_vhost(&self, vhost: &str, users: &[&str]) -> Fallible<()> {
        self.eval(&ctl::make_vhost(vhost, users)).await.map(|_| ())
    }

    pub(crate) async fn delete_vhost(&self, vhost: &str) -> Fallible<()> {
        self.eval(&ctl::delete_vhost(vhost)).await.map(|_| ())
    }

    /// Deletes it queue by queue. At once, 3.10 loses the supervisor of all queues with the strategy `at-least-once`, until it is started again.
    pub(crate) async fn clear_vhost(&self, vhost: &str) -> Fallible<()> {
        let program = format!(
            "[rabbit_amqqueue:delete(Queue, false, false, <<\"tests\">>) || Queue <- rabbit_amqqueue:list(<<\"{vhost}\">>)], ok."
        );
        self.eval(&program).await?;
        self.delete_vhost(vhost).await
    }

    /// A user with this password, and the tag that the proxy's user needs.
    pub(crate) async fn make_user(&self, user: &str, password: &str) -> Fallible<()> {
        let program = format!(
            "catch rabbit_auth_backend_internal:add_user(<<\"{user}\">>, <<\"{password}\">>, <<\"tests\">>),
             rabbit_auth_backend_internal:change_password(<<\"{user}\">>, <<\"{password}\">>, <<\"tests\">>),
             rabbit_auth_backend_internal:set_tags(<<\"{user}\">>, [impersonator], <<\"tests\">>), ok."
        );
        self.eval(&program).await.map(|_| ())
    }

    /// Closes the connections whose name begins so, in this vhost, as `rabbitmqctl close_connection` does. Returns how many.
    pub(crate) async fn close_connections(&self, vhost: &str, name: &str) -> Fallible<usize> {
        let program = format!(
            "length([rabbit_networking:close_connection(Pid, \"closed by a test\") || Pid <- rabbit_networking:connections(),
               [{{_, Properties}}, {{_, <<\"{vhost}\">>}}] <- [catch rabbit_networking:connection_info(Pid, [client_properties, vhost])],
               {{<<\"connection_name\">>, longstr, Name}} <- Properties, string:prefix(Name, <<\"{name}\">>) =/= nomatch])."
        );
        let closed = self.eval(&program).await?;
        closed.parse().map_err(|_| closed)
    }
}
