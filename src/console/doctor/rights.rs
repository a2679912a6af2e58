//! What a user may do, asked of the broker itself: by requests about objects that do not exist, which change nothing. RabbitMQ looks at the
//! permissions before it looks for the object, so that the one refusal is told from the other.

use std::hash::{BuildHasher, RandomState};

use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeleteOptions,
};
use lapin::{BasicProperties, Channel, Connection, ErrorKind};
use tokio::time::timeout;

use crate::amqp::reply_code::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED};
use crate::console::connection::Access;

use super::nodes::Entered;
use super::{NAME, PATIENCE, Patient, Report, pattern, quoted, set_permissions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Configure,
    Write,
    Read,
}

struct Rights<'a> {
    connection: &'a Connection,
    /// Part of all names used, so that no such object exists.
    nowhere: String,
}

pub(super) async fn examine(patient: &Patient, entered: &Entered, report: &mut Report) {
    let own = match own_rights(patient, entered, report).await {
        Ok(()) => Ok(()),
        Err(error) => Err((&patient.access, error)),
    };
    let client = match &patient.client {
        Some(client) => client_rights(patient, client, entered, report)
            .await
            .map_err(|error| (client, error)),
        None => Ok(()),
    };
    for (access, error) in [own.err(), client.err()].into_iter().flatten() {
        let says = format!("What it may do cannot be asked: {error}.");
        report.problem(
            about(access, entered),
            says,
            "Is the broker well? Try again.",
        );
    }
}

fn about(access: &Access, entered: &Entered) -> String {
    format!("user {}, vhost {}", access.user, entered.vhost)
}

/// The proxy's user: all of its own objects, and all exchanges that clients may name.
async fn own_rights(
    patient: &Patient,
    entered: &Entered,
    report: &mut Report,
) -> Result<(), String> {
    let rights = Rights::of(&entered.connection);
    let prefix = &patient.names.prefix().to_string();
    let mut missing = missing_rights(&rights, prefix).await?;
    let publishes = rights.may_use_the_default_exchange(prefix).await?;
    if !publishes {
        missing.push("write to the default exchange");
    }
    let about = about(&patient.access, entered);
    if missing.is_empty() {
        report.ok(&about, "The proxy's user may do what the proxy does.");
    } else {
        let says = format!("The proxy's user may not {}.", missing.join(", nor "));
        let command = patient.own_user().grant(&entered.vhost);
        report.problem(&about, says, command);
    }
    if &*patient.access.user == b"guest" {
        let says = "Whoever connects to the broker as `guest`, too, is believed to be the proxy.";
        report.note(&about, says, "Give the proxy a user of its own.");
    }
    // Who may not publish at all is not told of the tag.
    if publishes && rights.is_impersonator(prefix).await? {
        report.ok(&about, "It has the tag `impersonator`.");
    } else if publishes {
        let says = "It does not have the tag `impersonator`: dead letters lose the `user-id` of who published them.";
        let advice = format!(
            "rabbitmqctl set_user_tags {} impersonator, with the tags that it has",
            quoted(&patient.access.user.to_string())
        );
        report.note(&about, says, advice);
    }
    Ok(())
}

async fn missing_rights(rights: &Rights<'_>, prefix: &str) -> Result<Vec<&'static str>, String> {
    let queues = &rights.name(&format!("{prefix}."));
    let exchanges = &rights.name(&format!("{prefix}/"));
    let anything = &rights.name("");
    let mut missing = Vec::new();
    for (deed, name, words) in [
        (Deed::Configure, queues, "configure its own queues"),
        (Deed::Configure, exchanges, "configure intake exchanges"),
        (Deed::Write, exchanges, "write to its own exchanges"),
        (
            Deed::Write,
            anything,
            "write to the exchanges that clients name",
        ),
        (Deed::Read, queues, "read its own queues"),
        (Deed::Read, exchanges, "read intake exchanges, to bind them"),
    ] {
        if !rights.may(deed, name).await? {
            missing.push(words);
        }
    }
    Ok(missing)
}

/// A client: the intake exchanges only.
async fn client_rights(
    patient: &Patient,
    client: &Access,
    entered: &Entered,
    report: &mut Report,
) -> Result<(), String> {
    let about = about(client, entered);
    let connecting = client.connect_at(&entered.address, &entered.vhost, NAME);
    let connection = match timeout(PATIENCE, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            let advice = format!(
                "Is the password right? {} …",
                set_permissions(&client.user, &entered.vhost)
            );
            report.problem(about, format!("The client is not let in: {error}."), advice);
            return Ok(());
        }
        Err(_) => return Err("no answer in time".to_owned()),
    };
    let rights = Rights::of(&connection);
    let prefix = &patient.names.prefix().to_string();
    let (classic, quorum) = (
        rights.name(&format!("{prefix}/")),
        rights.name(&format!("{prefix}+/")),
    );
    let pattern = format!("^(…|{}([+/].*)?)$", pattern(prefix));
    if rights.may(Deed::Write, &classic).await? && rights.may(Deed::Write, &quorum).await? {
        report.ok(&about, "The client may write to the intake exchanges.");
    } else {
        let says = "The client may not write to the intake exchanges: the queues that it declares stay native.";
        let command = set_permissions(&client.user, &entered.vhost);
        let whole = format!("`--client-user {}` prints it whole", client.user);
        report.problem(&about, says, format!("{command} … '{pattern}' …; {whole}"));
    }
    let queues = rights.name(&format!("{prefix}."));
    let mut too_much = Vec::new();
    for (deed, words) in [
        (Deed::Read, "read"),
        (Deed::Configure, "configure"),
        (Deed::Write, "write to"),
    ] {
        if rights.may(deed, &queues).await? {
            too_much.push(words);
        }
    }
    if !too_much.is_empty() {
        let says = format!(
            "The client may {} the proxy's own queues, in which the messages of others are.",
            too_much.join(" and ")
        );
        let advice = format!(
            "Unless it is an administrator: {} with patterns that do not fit {prefix:?} at the beginning",
            set_permissions(&client.user, &entered.vhost)
        );
        report.note(&about, says, advice);
    }
    Ok(())
}

// === impl Rights ===

impl<'a> Rights<'a> {
    fn of(connection: &'a Connection) -> Rights<'a> {
        let nowhere = format!("nowhere-{:016x}", RandomState::new().hash_one(NAME));
        Rights {
            connection,
            nowhere,
        }
    }

    fn name(&self, begins: &str) -> String {
        format!("{begins}{}", self.nowhere)
    }

    async fn may(&self, deed: Deed, name: &str) -> Result<bool, String> {
        let channel = self.channel().await?;
        let answer = match deed {
            Deed::Configure => {
                // There is no such queue; if there is, it is not for this.
                let options = QueueDeleteOptions {
                    if_unused: true,
                    if_empty: true,
                    ..QueueDeleteOptions::default()
                };
                let deleted = channel.queue_delete(name.into(), options);
                within(deleted).await?.map(drop)
            }
            Deed::Read => {
                let options = BasicGetOptions::default();
                let got = channel.basic_get(name.into(), options);
                within(got).await?.map(drop)
            }
            Deed::Write => {
                let nothing = BasicProperties::default();
                self.publish(&channel, name, "", nothing).await?
            }
        };
        match answer {
            Err(error) if code(&error) == Some(NOT_FOUND) => Ok(true),
            answer => is_allowed(answer, &[ACCESS_REFUSED]),
        }
    }

    /// The broker drops a message for a missing queue.
    async fn may_use_the_default_exchange(&self, prefix: &str) -> Result<bool, String> {
        let (channel, nothing) = (self.channel().await?, BasicProperties::default());
        let name = self.name(prefix);
        let answer = self.publish(&channel, "", &name, nothing);
        is_allowed(answer.await?, &[ACCESS_REFUSED])
    }

    /// RabbitMQ refuses another user's `user-id` with 406, except from an impersonator.
    async fn is_impersonator(&self, prefix: &str) -> Result<bool, String> {
        let of_another = BasicProperties::default().with_user_id(self.nowhere.as_str().into());
        let channel = self.channel().await?;
        let name = self.name(prefix);
        let answer = self.publish(&channel, "", &name, of_another);
        is_allowed(answer.await?, &[PRECONDITION_FAILED, ACCESS_REFUSED])
    }

    async fn publish(
        &self,
        channel: &Channel,
        exchange: &str,
        key: &str,
        properties: BasicProperties,
    ) -> Result<lapin::Result<()>, String> {
        let options = ConfirmSelectOptions::default();
        within(channel.confirm_select(options))
            .await?
            .map_err(|error| error.to_string())?;
        let options = BasicPublishOptions::default();
        let published =
            within(channel.basic_publish(exchange.into(), key.into(), options, b"", properties))
                .await?;
        match published {
            Ok(confirm) => Ok(within(confirm).await?.map(drop)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// One per question: a refusal closes it.
    async fn channel(&self) -> Result<Channel, String> {
        let channel = within(self.connection.create_channel()).await?;
        channel.map_err(|error| error.to_string())
    }
}

async fn within<T>(answer: impl Future<Output = T>) -> Result<T, String> {
    let answer = timeout(PATIENCE, answer).await;
    answer.map_err(|_| "no answer in time".to_owned())
}

pub(super) fn code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(said) => Some(said.get_id()),
        _ => None,
    }
}

/// `refusals`: codes that say no. Another error is no answer.
fn is_allowed(answer: lapin::Result<()>, refusals: &[u16]) -> Result<bool, String> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if code(&error).is_some_and(|code| refusals.contains(&code)) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}
