//! Messages into files and out of them: what exports and imports need beside a look.

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::exported::END;
use super::login::Credentials;
use super::looks::Looks;
use super::parameters::{Place, bad};
use super::problem::Problem;
use crate::amqp::content::Content;
use crate::amqp::ids::ShortStr;
use crate::dead_letter::RuleSettings;
use crate::import::{Imported, Settings};
use crate::letter::Line;
use crate::machine::LiveLimits;
use crate::objects::Names;

/// All that exports and imports need. Clones are the same.
#[derive(Clone)]
pub struct Files {
    /// Who looks.
    pub looks: Looks,
    /// The user of the proxy's own links.
    pub own_user: ShortStr,
    /// The names of the proxy's own objects.
    pub names: Names,
    /// What shapes the history of messages.
    pub rules: RuleSettings,
    /// How large a file may be, and how long it may take to come.
    pub limits: LiveLimits,
}

/// A file, or a part of one, that is coming.
pub(super) struct Part {
    /// The number of its first line.
    pub(super) first: u64,
    /// What comes.
    pub(super) octets: Body,
}

/// A file that was read: the messages, each with the number of its line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    messages: Vec<Content>,
    lines: Vec<u64>,
}

/// What became of a file.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Imported)]
pub(super) struct Answer {
    /// Messages that are confirmed in the queue.
    imported: u64,
    /// The lines that the queue refused, or that fit no frame of the broker; the first is 1.
    refused: Vec<u64>,
    /// Messages that may be in the queue.
    unsure: u64,
    /// Messages that were not sent.
    left: u64,
    /// Why not.
    cause: Option<String>,
}

// === impl Files ===

impl Files {
    /// Puts the messages of a file into a queue, in the name of that user.
    ///
    /// # Errors
    /// When the file cannot be read, or nothing of it can be imported.
    pub(super) async fn import(
        &self,
        credentials: Credentials,
        peer: std::net::IpAddr,
        place: Place,
        file: Part,
    ) -> Result<Answer, Problem> {
        if self.names.is_ours(&place.queue) {
            let whose = format!("{} is one of the proxy's own", place.queue);
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("{whose}: nothing is imported there"),
            ));
        }
        // Before anything is kept of a file: so only so many are in memory.
        let permit = self.looks.permit(peer).await?;
        let Read { messages, lines } = Read::of(&self.receive(file.octets).await?, file.first)?;
        let settings = Settings {
            login: credentials.login(place.vhost),
            queue: place.queue,
            messages: messages.into(),
            rules: self.rules,
            max_history: self.limits.now().max_history,
        };
        let imported = self.looks.import(peer, permit, settings).await?;
        Answer::of(imported, &lines)
    }

    async fn receive(&self, file: Body) -> Result<Vec<u8>, Problem> {
        let limits = self.limits.now();
        let file = Limited::new(file, limits.look_bytes).collect();
        let received = timeout(limits.look_timeout, file).await;
        let received = received.map_err(|_| {
            let detail = "the file did not come within `look-timeout`";
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
        })?;
        match received {
            Ok(file) => Ok(file.to_bytes().into()),
            Err(error) if error.is::<LengthLimitError>() => Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the file is larger than `look-bytes`: send it in parts",
            )),
            Err(error) => Err(bad(format_args!("the file broke off: {error}"))),
        }
    }
}

// === impl Read ===

impl Read {
    /// All messages, or none. `first`: the number of the first line.
    ///
    /// # Errors
    /// When one of the lines tells none: which, and why.
    fn of(file: &[u8], first: u64) -> Result<Read, Problem> {
        let mut read = Read::default();
        for (number, line) in (first..).zip(file.split(|octet| *octet == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(END) {
                continue;
            }
            let message = Line::read(line);
            let message = message.map_err(|why| bad(format_args!("line {number}: {why}")))?;
            read.messages.push(message);
            read.lines.push(number);
        }
        Ok(read)
    }
}

// === impl Answer ===

impl Answer {
    fn of(imported: Imported, lines: &[u64]) -> Result<Answer, Problem> {
        let Imported {
            imported,
            refused,
            unsure,
            left,
            failure,
        } = imported;
        let nothing_went = imported == 0 && refused.is_empty();
        match failure {
            // The broker says so of the first one, and of all.
            Some(failure) if nothing_went => Err(failure.into()),
            failure => {
                let line = |place: &u64| lines.get(usize::try_from(*place).ok()?).copied();
                Ok(Answer {
                    imported,
                    refused: refused.iter().filter_map(line).collect(),
                    unsure,
                    left,
                    cause: failure.map(|failure| failure.to_string()),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_none_is_named() {
        let line = r#"{"raw-properties":"0000","body":{"encoding":"text","text":"a","cut":false}}"#;
        let file = format!("\n{line}\r\n{{\"end\":{{}}}}\n{line}");
        let read = Read::of(file.as_bytes(), 1).expect("a file");
        assert_eq!(read.lines, [2, 4]);
        let wrong =
            Read::of(format!("{line}\n\n{{}}\n").as_bytes(), 11).expect_err("a line of nothing");
        let wrong = format!("{wrong:?}");
        assert!(wrong.contains("line 13: "), "{wrong}");
    }

    #[test]
    fn refused_lines_have_the_numbers_of_the_file() {
        let imported = Imported {
            imported: 1,
            refused: vec![1],
            ..Imported::default()
        };
        let answer = Answer::of(imported, &[2, 4]).expect("an answer");
        assert_eq!(answer.refused, [4]);
    }
}
