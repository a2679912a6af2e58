//! How a generation of RabbitMQ writes its refusals: names that are not ASCII, and texts that are too long.

use crate::amqp::version::Version;

use super::refusal::INEQUIVALENT;

const LONGEST: usize = 255;

/// How this broker writes a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// 3.10 and 3.11: bytes unchanged.
    Bytes,
    /// 3.12 to 4.0.4 (from the sources): characters, each sent as one byte. One over U+00FF
    /// crashes the channel.
    Latin1,
    /// From 4.0.5 on: cut at 255 *characters*. More than 255 bytes crash the channel (measured on
    /// 4.3.6).
    Characters,
}

// === impl Wording ===

impl Wording {
    /// For a version like `4.3.6`.
    pub fn of_version(version: &[u8]) -> Wording {
        match Version::parse(version) {
            None | Some(Version(..=2, ..) | Version(3, ..=11, _)) => Wording::Bytes,
            Some(Version(3, ..) | Version(4, 0, ..=4)) => Wording::Latin1,
            Some(Version(4.., ..)) => Wording::Characters,
        }
    }

    /// Whether the broker can refuse a probe of this queue. Otherwise the refusal crashes the
    /// channel, and the client's connection is closed with 541; a matching declare would succeed
    /// without us, so it must not be probed.
    pub fn can_refuse(self, queue: &[u8], vhost: &[u8], exchange: &[u8], intake: &[u8]) -> bool {
        let written = [queue, vhost, exchange].map(characters);
        let mut bytes = written.iter().flatten();
        match self {
            Wording::Bytes => true,
            // U+00FF is C3 BF.
            Wording::Latin1 => bytes.all(|byte| *byte < 0xc4),
            Wording::Characters if bytes.all(u8::is_ascii) => true,
            Wording::Characters => {
                let [queue, vhost, exchange] = written.map(|name| name.len());
                let expires = INEQUIVALENT.len()
                    + "x-expires' for queue '' in vhost '': received the value '-1' of type 'long' but current is none"
                        .len();
                let rewritten = INEQUIVALENT.len()
                    + "x-dead-letter-exchange' for queue '' in vhost '': received '' but current is ''".len()
                    + intake.len()
                    + exchange;
                let absent =
                    "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue '' in vhost '' of queue type rabbit_classic_queue"
                        .len();
                expires.max(rewritten).max(absent) + queue + vhost <= LONGEST
            }
        }
    }

    /// Whether some argument values crash the broker when a refusal names them.
    pub fn fails_at_some_values(self) -> bool {
        self == Wording::Latin1
    }
}

/// In characters: each byte is one if they are not UTF-8.
fn characters(value: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(value) {
        Ok(_) => value.to_vec(),
        Err(_) => {
            let characters = value.iter().map(|byte| char::from(*byte));
            characters.collect::<String>().into_bytes()
        }
    }
}

/// As `rabbit_binary_generator:amqp_exception_explanation` cuts: over 255 bytes, the first 252 and
/// `...`. (4.x counts characters; a text where that differs crashes its channel, and this is the
/// better answer.)
pub fn cut(mut text: Vec<u8>) -> Vec<u8> {
    if text.len() > LONGEST {
        text.truncate(LONGEST - 3);
        text.extend_from_slice(b"...");
    }
    text
}
