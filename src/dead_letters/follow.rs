//! Follows a redrive to its end. It is looked at every second, as each look logs in to the broker.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::{Failed, words};
use crate::admin::client::Client;
use crate::redrives::Shown;

/// Before the first look: many redrives are short.
const FIRST: Duration = Duration::from_millis(100);
/// The pauses double up to this.
const LONGEST: Duration = Duration::from_secs(1);
/// How many looks in a row may find no answer.
const MOST_UNANSWERED: u32 = 10;
/// Where lines cannot be rewritten, one is written so often.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows how far it is, beside what is printed at the end.
pub(super) struct Screen {
    limit: Option<u64>,
    /// It can rewrite its line.
    is_terminal: bool,
    /// There is a line to rewrite.
    is_drawn: bool,
    last: Instant,
}

/// How it ended: the answer, and the same read.
///
/// # Errors
/// When the proxy does not answer any more, or knows nothing of it.
pub(super) async fn to_its_end(
    client: &Client,
    path: &str,
    begun: &Shown,
    screen: &mut Screen,
) -> Result<(Value, Shown), Failed> {
    let (mut pause, mut unanswered) = (FIRST, 0);
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
        let answer = match client.get(path).await {
            Ok(answer) => answer,
            Err(why) if why.may_pass() && unanswered < MOST_UNANSWERED => {
                unanswered += 1;
                continue;
            }
            Err(why) => return Err(why.into()),
        };
        unanswered = 0;
        let shown: Shown = serde_json::from_value(answer.clone())?;
        if shown.begun != begun.begun {
            return Err(Failed::Restarted);
        }
        if shown.ended.is_some() {
            return Ok((answer, shown));
        }
        screen.show(&shown);
    }
}

// === impl Screen ===

impl Screen {
    pub(super) fn new(limit: Option<u64>, non_interactive: bool) -> Screen {
        Screen {
            limit,
            is_terminal: !non_interactive && io::stderr().is_terminal(),
            is_drawn: false,
            last: Instant::now(),
        }
    }

    fn show(&mut self, shown: &Shown) {
        let line = words::progress(shown, self.limit);
        if self.is_terminal {
            self.clear();
            self.is_drawn = true;
            eprint!("{line}");
            drop(io::stderr().flush()); // nobody looks at a terminal that is gone
        } else if self.last.elapsed() >= BETWEEN_LINES {
            self.last = Instant::now();
            eprintln!("{line}");
        }
    }

    /// Takes the line away, for what is written next.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            eprint!("\r\x1b[K");
        }
    }
}
