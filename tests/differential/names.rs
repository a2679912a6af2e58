//! Names that nobody else uses, so that runs do not meet; and their removal from what is recorded, so that runs can be compared.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::SystemTime;

use regex::bytes::{Captures, Regex};

use super::frame::Frame;
use super::script::Script;
use super::value::{Bytes, replace};

/// Names that a broker makes up.
static GENERATED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?-u)amq\.(gen|ctag)-[A-Za-z0-9_-]{22}").expect("a constant"));

/// The names of one run.
pub(crate) struct Names {
    /// `-` and five characters: always the same length, since texts of errors are cut at 255 bytes.
    pub suffix: String,
    fresh: HashSet<Bytes>,
    queue_type: String,
    vhost: String,
    /// Of queues and of consumers, in order of appearance.
    generated: Mutex<[Vec<Bytes>; 2]>,
}

impl Names {
    pub(crate) fn new(script: &Script, queue_type: &str, vhost: &str) -> Names {
        Names {
            suffix: suffix(),
            fresh: script.fresh_names().into_iter().collect(),
            queue_type: queue_type.to_owned(),
            vhost: vhost.to_owned(),
            generated: Mutex::default(),
        }
    }

    /// The same names for another run, after all that this one made is deleted.
    pub(crate) fn again(&self) -> Names {
        Names {
            suffix: self.suffix.clone(),
            fresh: self.fresh.clone(),
            queue_type: self.queue_type.clone(),
            vhost: self.vhost.clone(),
            generated: Mutex::default(),
        }
    }

    /// Script → wire.
    pub(crate) fn insert(&self, text: &mut Bytes) {
        let mut out = Bytes::with_capacity(text.len());
        for word in text.chunk_by(|a, b| (is_word(*a) || *a == b'$') && is_word(*b)) {
            match word.strip_prefix(b"$") {
                None if self.fresh.contains(word) => {
                    out.extend_from_slice(word);
                    out.extend_from_slice(self.suffix.as_bytes());
                }
                Some(b"type") => out.extend_from_slice(self.queue_type.as_bytes()),
                Some(b"vhost") => out.extend_from_slice(self.vhost.as_bytes()),
                Some(variable) => match self.generated_name(variable) {
                    Some(name) => out.extend(name),
                    None => out.extend_from_slice(word),
                },
                None => out.extend_from_slice(word),
            }
        }
        *text = out;
    }

    pub(crate) fn inserted(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        self.insert(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Wire → record.
    pub(crate) fn remove_from(&self, frame: &mut Frame) {
        for (_, arg) in &mut frame.args {
            arg.for_each_text(true, &mut |text| self.remove(text));
        }
    }

    fn remove(&self, text: &mut Bytes) {
        // A text that was cut may have been cut in a suffix.
        if let Some(kept) = text.strip_suffix(b"...") {
            let suffix = self.suffix.as_bytes();
            let cut = (1..suffix.len()).find(|n| kept.ends_with(&suffix[..*n]));
            if let Some(cut) = cut {
                *text = [&kept[..kept.len() - cut], b"..."].concat();
            }
        }
        replace(text, self.suffix.as_bytes(), b"");
        if memchr::memmem::find(text, b"amq.").is_some() {
            let numbered = |found: &Captures<'_>| self.variable(&found[1], &found[0]);
            *text = GENERATED.replace_all(text, numbered).into_owned();
        }
    }

    /// `$gen1` for the first queue name of the server's.
    fn variable(&self, kind: &[u8], name: &[u8]) -> Bytes {
        let mut generated = self.generated.lock().expect("no panic");
        let names = &mut generated[usize::from(kind == b"ctag")];
        let known = names.iter().position(|of| of == name);
        let at = known.unwrap_or_else(|| {
            names.push(name.to_vec());
            names.len() - 1
        });
        format!("${}{}", String::from_utf8_lossy(kind), at + 1).into_bytes()
    }

    fn generated_name(&self, variable: &[u8]) -> Option<Bytes> {
        let variable = std::str::from_utf8(variable).ok()?;
        let (kind, number) = match variable.strip_prefix("gen") {
            Some(number) => (0, number),
            None => (1, variable.strip_prefix("ctag")?),
        };
        let number: usize = number.parse().ok()?;
        let generated = self.generated.lock().expect("no panic");
        generated[kind].get(number.checked_sub(1)?).cloned()
    }

    /// `$gen1`, … as far as there are.
    pub(crate) fn generated_queues(&self) -> Vec<Bytes> {
        let count = self.generated.lock().expect("no panic")[0].len();
        (1..=count)
            .map(|n| format!("$gen{n}").into_bytes())
            .collect()
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)
}

/// Unlike any other of this process and, very likely, of others on the same broker.
fn suffix() -> String {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        AtomicU64::new(now.map_or(0, |now| now.as_millis() as u64))
    });
    // A multiplier that is prime to 36^5 spreads neighbours: no suffix is nearly another.
    let mut number = NEXT
        .fetch_add(1, Ordering::Relaxed)
        .wrapping_mul(36_313_957)
        % 36u64.pow(5);
    let mut suffix = String::from("-");
    for _ in 0..5 {
        suffix.push(char::from(
            b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize],
        ));
        number /= 36;
    }
    suffix
}
