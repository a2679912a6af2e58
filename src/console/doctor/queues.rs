//! The proxy's own queues: whether they answer, what is parked, and whether anybody takes the signals.

use lapin::ErrorKind;
use lapin::options::{BasicConsumeOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use tokio::time::timeout;

use crate::amqp::ids::ShortStr;
use crate::amqp::reply_code::INTERNAL_ERROR;
use crate::machine::Trouble;
use crate::pulse::mark;

use super::nodes::Entered;
use super::rights::code;
use super::{NAME, PATIENCE, Patient, Report};

type Counted = (u32, u32);

pub(super) async fn examine(patient: &Patient, entered: &Entered, report: &mut Report) {
    let about = |queue: &ShortStr| format!("queue {queue}, vhost {}", entered.vhost);
    let parking = patient.names.parking();
    let intake = patient.names.intake_queue();
    for queue in [parking, intake] {
        if let Some(trouble) = trouble(patient, entered, queue).await {
            report.problem(
                about(queue),
                format!("It {trouble}."),
                format!("What is to be done: {}.", trouble.advice()),
            );
        }
    }
    if let Some(other) = other_user(patient, entered).await {
        let user = &patient.access.user;
        report.problem(
            format!("vhost {}", entered.vhost),
            format!("Proxies with another user, {other}, work there: each parks what the other ones delay or park, as `implausible`."),
            format!("Give all proxies of the vhost the same user, {other} or {user}, or each user a `prefix`. Their mark goes {} s after the last of them.", mark::EXPIRES / 1000),
        );
    }
    match count(entered, parking).await {
        None => report.ok(
            about(parking),
            "It is not there yet: the first proxy makes it.",
        ),
        Some((0, _)) => report.ok(about(parking), "Nothing is parked."),
        Some((messages, _)) => {
            let says = parked(messages);
            report.note(
                about(parking),
                says,
                "docs/reference/parking.md says how to see why, and how they go on.",
            );
        }
    }
    match count(entered, intake).await {
        None => report.ok(
            about(intake),
            "It is not there yet: the first proxy makes it.",
        ),
        Some((_, 0)) => {
            let says = "No proxy consumes it: what expires or overflows waits there.";
            report.note(about(intake), says, "Start the proxy, if it does not run.");
        }
        Some((messages, _)) => report.ok(
            about(intake),
            format!("A proxy consumes it; {}.", waiting(messages)),
        ),
    }
}

/// The other user whose proxies work in the vhost. Uses a declare that never creates: only streams
/// have a maximum age.
async fn other_user(patient: &Patient, entered: &Entered) -> Option<ShortStr> {
    let names = &patient.names;
    let text = |bytes: &[u8]| AMQPValue::LongString(bytes.to_vec().into());
    let mut arguments = FieldTable::default();
    for (name, value) in [
        ("x-queue-type", text(b"classic")),
        ("x-expires", AMQPValue::LongLongInt(mark::EXPIRES.into())),
        ("x-dead-letter-exchange", text(names.parking())),
        (mark::ARGUMENT, text(&patient.access.user)),
        ("x-max-age", text(b"1D")),
    ] {
        arguments.insert(name.into(), value);
    }
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let channel = timeout(PATIENCE, entered.connection.create_channel()).await;
    let channel = channel.ok()?.ok()?;
    let asked = channel.queue_declare(names.user_mark().to_string().into(), durable, arguments);
    let refused = timeout(PATIENCE, asked).await.ok()?.err()?;
    match refused.kind() {
        ErrorKind::ProtocolError(said) => mark::other(said.get_message().as_str().as_bytes()),
        _ => None,
    }
}

/// Asks the queue itself, unlike a declare: see [`crate::pulse`]. On a separate connection, which
/// the answer may close.
async fn trouble(patient: &Patient, entered: &Entered, queue: &ShortStr) -> Option<Trouble> {
    let counted = count(entered, queue).await?;
    let Entered { address, vhost, .. } = entered;
    let connection = patient.access.connect_at(address, vhost, NAME);
    let connection = timeout(PATIENCE, connection).await.ok()?.ok()?;
    let channel = timeout(PATIENCE, connection.create_channel()).await.ok()?;
    let (channel, name) = (channel.ok()?, || queue.to_string().into());
    let asked = async {
        match counted {
            (_, 1..) if queue == patient.names.intake_queue() => {
                let (tag, options) = (NAME.into(), BasicConsumeOptions::default());
                let consumed = channel.basic_consume(name(), tag, options, FieldTable::default());
                consumed.await.map(drop)
            }
            // What it gives goes back with the connection.
            (0, 0) => channel
                .basic_get(name(), BasicGetOptions::default())
                .await
                .map(drop),
            _ => Ok(()),
        }
    };
    let trouble = match timeout(PATIENCE, asked).await {
        Err(_) => Some(Trouble::Silent),
        Ok(Err(error)) if code(&error) == Some(INTERNAL_ERROR) => Some(Trouble::Dead),
        // Of a queue with a single active consumer the queue itself says so; and who has no right to ask does not know.
        Ok(_) => None,
    };
    let _ = timeout(PATIENCE, connection.close(200, "Goodbye".into())).await;
    trouble
}

/// `None`: missing, or hidden, which the permissions report.
async fn count(entered: &Entered, queue: &ShortStr) -> Option<Counted> {
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    // A refusal closes its channel.
    let channel = timeout(PATIENCE, entered.connection.create_channel())
        .await
        .ok()?
        .ok()?;
    let asked = channel.queue_declare(queue.to_string().into(), passive, FieldTable::default());
    let declared = timeout(PATIENCE, asked).await.ok()?.ok()?;
    Some((declared.message_count(), declared.consumer_count()))
}

pub(super) fn parked(messages: u32) -> String {
    match messages {
        1 => "1 dead letter is parked: no queue took it.".to_owned(),
        _ => format!("{messages} dead letters are parked: no queue took them."),
    }
}

pub(super) fn waiting(signals: u32) -> String {
    match signals {
        0 => "no signal waits".to_owned(),
        1 => "1 signal waits".to_owned(),
        _ => format!("{signals} signals wait"),
    }
}
