//! A scenario as text, and the manual for those who write one. Files are `scenarios/*.txt`; a scenario begins with `=== NAME`, and its name
//! with the number of the rule (`S4.2-older-entries`). `DLX_TEST_SHOW=1 cargo test --test differential -- S4.2` prints what was recorded.
//!
//! ```text
//! === S1.1-multiple
//! # Comments say which rule, and what is to be seen. A line that ends with a backslash goes on in the next one.
//! only 4.x >=4.1 classic          # versions (any of `4.x`, `3.10`, `>=4.1`, `<4.3`) and queue types; else all
//! proxy mode=rejects-only                 # settings of the proxy: one (and a vhost) of its own for each distinct set of them; `management-url=$management`
//! also mode=rejects-only                  # the whole scenario once more with these settings: a twin, `S1.1-multiple-mode-rejects-only`
//! proxy-policy p pattern=^src$ apply-to=queues priority=1 mode=rejects-only definition={dead-letter-exchange: "dlx"}
//!                                 # of the proxy where it is, of the broker in the direct run; also `vhost=/`
//! names x y                       # fresh names, besides those declared (see below)
//! shows redelivered               # this scenario shows the stated difference of that name: see `compare.rs`
//! as bob: b c                     # connections b and c log in as the user bob, with his name as password; else guest
//! ```
//! Then the steps, in order. `$type` is `classic` or `quorum`: a scenario that says it runs with both.
//! ```text
//! a.1 queue.declare queue=src durable arguments={x-queue-type: "$type", x-dead-letter-exchange: "", x-dead-letter-routing-key: "dlq"}
//! a.1 basic.publish routing-key=src delivery-mode=2 headers={n: l:5, a: A[1, "x"]} body="m1"
//! a.1 basic.nack delivery-tag=1 multiple
//! ```
//! Connection `a`, channel 1: opened at first use (after the server closed it only by `channel.open`; until then its steps are skipped).
//! Methods and fields are named as in the specification, properties stand among them; bits are bare words; fields not given are zero or
//! empty; values are written as in `notation.rs`. A synchronous method waits for its answer, but not with `no-wait` or `>`:
//! ```text
//! a.1 > queue.declare queue=q     # pipelined: its answer may be expected later
//! a.1 expect basic.deliver 3      # until 3 further of these came, or the channel is closed. Also `expect channel.close`, `basic.ack`, …
//! a expect connection.close       # on channel 0; `a expect closed`: the end of the socket; `a expect heartbeat 2`; also
//!                                 # `protocol-header`, and `amqp-1.0-frame` behind one of AMQP 1.0
//! a.1 expect confirm 20           # so many publishes more, by acks or nacks with or without `multiple`
//! until dlq ready=1 consumers=0   # the broker itself is asked until it is so; `until dlq gone`
//! repeat 1000 a.1 > queue.declare queue=q$i        # $i = 1, 2, …; in arrays: A["x$i" times 200]
//! for a b c: $c open raw          # the same by several connections, or whatever stands for $c
//! direct.1 basic.get queue=src    # connections whose name begins with `direct` go to the broker in both runs
//! a open frame-max=8192 heartbeat=1 virtual-host=no client-properties={…} response="\x00bob\x00bob"   # with other fields of start-ok, tune-ok, open
//! a open raw                      # only the socket; nothing is answered or opened by itself. Then e.g. `a raw "AMQP\x00\x00\x09\x01"`,
//!                                 # `a.0 expect connection.start`, `a.0 > connection.start-ok …`
//! a raw "\x01\x00"                # bytes as they are
//! a.1 frame 2 "\x00\x3c"          # a frame of that type with that payload (a name in it is 6 bytes longer than it looks)
//! a hold                          # keeps back what is sent from here on; `a send`: in one piece. Channels must be open before
//! a stop-reading                  # nor does the client answer a close then; `a read`
//! a drop                          # closes the socket without a word
//! rest                            # until nothing happens any more; through the proxy: until all is as it was at this step directly
//! wait 300ms                      # only where there is nothing to wait for, as with heartbeats
//! stop proxy                      # and `start proxy`, `restart proxy`: nothing in the direct run
//! ```
//! Steps by management, in order with the others:
//! ```text
//! user bob configure=.* write=^x read=.* tags=impersonator    # makes it or changes its rights
//! topic-permission bob exchange=amq.topic write=^a read=.*
//! user-limit bob max-channels=3   # or max-connections
//! vhost-limit max-queues=5        # or max-connections; such a scenario has a vhost of its own
//! policy p pattern=^src$ apply-to=queues priority=3 definition={dead-letter-exchange: "dlx"}   # of the broker, in both runs
//! operator-policy p …             # the same
//! delete policy p                 # also `delete operator-policy p`, `delete user bob`
//! close a                         # as an operator closes a connection, found by the name that the client gave
//! describe a                      # what management says of it is recorded
//! ```
//! **Fresh names.** What is declared (queues, exchanges), made (users, policies) or listed by `names` gets `-` and 5 characters wherever it
//! stands as a whole word (letters, digits, `_ . -`) in any string; the record has them taken out again. Names of the server's are `$gen1`,
//! consumer tags `$ctag1`, in order of appearance: in records, and in strings of scripts.
//!
//! **The end.** Each channel is brought to rest with a `channel.flow`, connections are closed, and all that is left in the declared queues
//! is fetched and recorded. What comes later than the steps is nobody's: let a step `expect` it, or wait with `until`.

use std::fmt;
use std::time::Duration;

use super::methods::{Arg, Args, Method, write_args};
use super::notation::{Quoted, Word};
use super::value::Bytes;

/// One scenario. Printed, it is a script again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Script {
    pub name: String,
    pub comments: Vec<String>,
    /// Versions and queue types.
    pub only: Vec<String>,
    /// Settings of the proxy.
    pub proxy: Vec<(String, String)>,
    /// Policies of the proxy.
    pub policies: Vec<Operation>,
    pub names: Vec<String>,
    pub shows: Option<String>,
    /// Connection and user.
    pub logins: Vec<(String, String)>,
    pub steps: Vec<Step>,
}

/// What is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// By the client of that name.
    Client(String, Action),
    /// By management.
    Operator(Operation),
    /// `stop`, `start`, `restart`
    Proxy(String),
    Until(Until),
    Rest,
    Wait(Duration),
}

/// What a client does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Method(Call),
    /// Channel, what, how often.
    Expect(u16, String, usize),
    Raw(Bytes),
    /// Channel, type, payload.
    Frame(u16, u8, Bytes),
    /// With these fields of the handshake; nothing: only the socket.
    Open(Option<Args>),
    Read(bool),
    Hold(bool),
    Drop,
}

/// A method that is sent.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub channel: u16,
    pub method: &'static Method,
    /// Fields, properties, body.
    pub args: Args,
    /// Not waited for.
    pub pipelined: bool,
}

/// A queue, and what must be true of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Until {
    pub queue: String,
    /// Nothing: it is gone.
    pub counts: Option<Counts>,
}

/// As a passive declare says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub ready: Option<u64>,
    pub consumers: Option<u64>,
}

/// `verb name option=value …`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    pub verb: String,
    pub name: String,
    pub options: Vec<(String, Arg)>,
}

impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        let all = |call: &Call| {
            (
                call.channel,
                call.method.name.clone(),
                call.args.clone(),
                call.pipelined,
            )
        };
        all(self) == all(other)
    }
}

// === impl Script ===

impl Script {
    /// Does it run on that version, with queues of that type?
    pub(crate) fn runs_on(&self, version: &str, queue_type: Option<&str>) -> bool {
        let is_type = |word: &&String| matches!(&***word, "classic" | "quorum");
        let (types, versions): (Vec<_>, Vec<_>) = self.only.iter().partition(is_type);
        let right_type = queue_type
            .is_none_or(|queue_type| types.is_empty() || types.iter().any(|of| *of == queue_type));
        right_type && (versions.is_empty() || versions.iter().any(|of| fits(version, of)))
    }

    /// Does it say `$type`?
    pub(crate) fn depends_on_type(&self) -> bool {
        self.to_string().contains("$type")
    }

    /// All names that are made fresh for a run.
    pub(crate) fn fresh_names(&self) -> Vec<Bytes> {
        let mut names: Vec<Bytes> = self
            .names
            .iter()
            .map(|name| name.clone().into_bytes())
            .collect();
        names.extend(
            self.policies
                .iter()
                .map(|policy| policy.name.clone().into_bytes()),
        );
        for step in &self.steps {
            match step {
                Step::Client(_, Action::Method(call)) => {
                    names.extend(call.declares().map(|(_, name)| name))
                }
                Step::Operator(made)
                    if matches!(&*made.verb, "user" | "policy" | "operator-policy") =>
                {
                    names.push(made.name.clone().into_bytes());
                }
                _ => {}
            }
        }
        names
    }

    /// What is said of policies of the proxy, for the broker of the direct run. One that only sets a mode says nothing to a broker.
    pub(crate) fn policies_of_the_broker(&self) -> Vec<Operation> {
        let says =
            |policy: &&Operation| policy.options.iter().any(|(name, _)| name == "definition");
        let of_the_broker = |policy: &Operation| Operation {
            verb: "policy".to_owned(),
            ..policy.clone()
        };
        self.policies
            .iter()
            .filter(says)
            .map(of_the_broker)
            .collect()
    }

    /// Queues or exchanges that it declares, by their names in the script, each once, in order.
    pub(crate) fn declared(&self, what: &str) -> Vec<Bytes> {
        self.declared_by(self.steps.len(), what)
    }

    /// The same of its first steps.
    pub(crate) fn declared_by(&self, steps: usize, what: &str) -> Vec<Bytes> {
        let mut declared = Vec::new();
        for step in self.steps.iter().take(steps) {
            if let Step::Client(_, Action::Method(call)) = step
                && let Some((of, name)) = call.declares()
                && of == what
                && !declared.contains(&name)
            {
                declared.push(name);
            }
        }
        declared
    }
}

impl Call {
    /// `queue` or `exchange`, and the name, if it declares one that is not the server's.
    fn declares(&self) -> Option<(&'static str, Bytes)> {
        let of = match &*self.method.name {
            "queue.declare" => "queue",
            "exchange.declare" => "exchange",
            _ => return None,
        };
        let (_, name) = self.args.iter().find(|(field, _)| *field == of)?;
        let name = name.text().to_vec();
        (!name.is_empty() && !name.starts_with(b"amq.") && !name.starts_with(b"$"))
            .then_some((of, name))
    }
}

/// `4.x`, `3.10`, `>=4.1`, `<4.3`: is that version one of them?
fn fits(version: &str, of: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        text.split('.')
            .map_while(|number| number.parse().ok())
            .collect()
    };
    let (is, digits) = (numbers(version), of.trim_start_matches(['<', '>', '=']));
    let bound = numbers(digits);
    if of.starts_with(">=") {
        is >= bound
    } else if of.starts_with('<') {
        is < bound
    } else {
        is.starts_with(&bound)
    }
}

// === it is written

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "=== {}", self.name)?;
        self.comments
            .iter()
            .try_for_each(|comment| writeln!(f, "#{comment}"))?;
        if !self.only.is_empty() {
            writeln!(f, "only {}", self.only.join(" "))?;
        }
        if !self.proxy.is_empty() {
            f.write_str("proxy")?;
            let mut settings = self.proxy.iter();
            settings
                .try_for_each(|(name, value)| write!(f, " {name}={}", Word(value.as_bytes())))?;
            writeln!(f)?;
        }
        self.policies
            .iter()
            .try_for_each(|policy| writeln!(f, "{policy}"))?;
        if !self.names.is_empty() {
            writeln!(f, "names {}", self.names.join(" "))?;
        }
        if let Some(shows) = &self.shows {
            writeln!(f, "shows {shows}")?;
        }
        let mut logins = self.logins.iter();
        logins.try_for_each(|(connection, user)| writeln!(f, "as {user}: {connection}"))?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Operator(operation) => operation.fmt(f),
            Step::Proxy(verb) => write!(f, "{verb} proxy"),
            Step::Wait(time) => write!(f, "wait {}ms", time.as_millis()),
            Step::Rest => f.write_str("rest"),
            Step::Until(until) => until.fmt(f),
            Step::Client(connection, action) => {
                f.write_str(connection)?;
                match action {
                    Action::Method(call) => {
                        let pipelined = if call.pipelined { "> " } else { "" };
                        write!(f, ".{} {pipelined}{}", call.channel, call.method.name)?;
                        write_args(f, call.args.iter().map(|(name, arg)| (*name, arg)))
                    }
                    Action::Expect(channel, what, 1) => write!(f, ".{channel} expect {what}"),
                    Action::Expect(channel, what, count) => {
                        write!(f, ".{channel} expect {what} {count}")
                    }
                    Action::Raw(bytes) => write!(f, " raw {}", Quoted(bytes)),
                    Action::Frame(channel, kind, payload) => {
                        write!(f, ".{channel} frame {kind} {}", Quoted(payload))
                    }
                    Action::Open(None) => f.write_str(" open raw"),
                    Action::Open(Some(args)) => {
                        f.write_str(" open")?;
                        write_args(f, args.iter().map(|(name, arg)| (*name, arg)))
                    }
                    Action::Read(true) => f.write_str(" read"),
                    Action::Read(false) => f.write_str(" stop-reading"),
                    Action::Hold(true) => f.write_str(" hold"),
                    Action::Hold(false) => f.write_str(" send"),
                    Action::Drop => f.write_str(" drop"),
                }
            }
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "until {}", Word(self.queue.as_bytes()))?;
        let Some(counts) = self.counts else {
            return f.write_str(" gone");
        };
        for (name, count) in [("ready", counts.ready), ("consumers", counts.consumers)] {
            if let Some(count) = count {
                write!(f, " {name}={count}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verb)?;
        if !self.name.is_empty() {
            write!(f, " {}", Word(self.name.as_bytes()))?;
        }
        write_args(f, self.options.iter().map(|(name, arg)| (&**name, arg)))
    }
}
