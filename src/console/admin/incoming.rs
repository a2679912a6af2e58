//! A file while it comes: its lines are read one by one, so that no more is kept of it than the messages that they tell.

use super::exported::END;
use super::parameters::bad;
use super::problem::Problem;
use crate::amqp::content::Content;
use crate::letter::Line;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Incoming {
    pub(super) messages: Vec<Content>,
    pub(super) lines: Vec<u64>,
    ended: u64,
    begun: Vec<u8>,
}

// === impl Incoming ===

impl Incoming {
    pub(super) fn new(first: u64) -> Incoming {
        Incoming {
            ended: first.saturating_sub(1),
            ..Incoming::default()
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// When a line holds no message.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        let rest = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            self.end_line(piece)?;
        }
        self.begun.extend_from_slice(rest);
        Ok(())
    }

    /// End of the file; the last line may have no line break.
    ///
    /// # Errors
    /// As above.
    pub(super) fn finish(&mut self) -> Result<(), Problem> {
        self.end_line(b"")
    }

    fn end_line(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let mut begun = std::mem::take(&mut self.begun);
        let line = match begun.is_empty() {
            true => piece,
            false => {
                begun.extend_from_slice(piece);
                &begun
            }
        };
        self.ended += 1;
        let (number, line) = (self.ended, line.trim_ascii());
        if line.is_empty() || line.starts_with(END) {
            return Ok(());
        }
        let message = Line::read(line);
        let message = message.map_err(|why| bad(format_args!("line {number}: {why}")))?;
        self.messages.push(message);
        self.lines.push(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        r#"{"raw-properties":"0000","body":{"encoding":"text","text":"a","cut":false}}"#;

    fn read(file: &str, first: u64, piece: usize) -> Result<Incoming, Problem> {
        let mut incoming = Incoming::new(first);
        for piece in file.as_bytes().chunks(piece) {
            incoming.take(piece)?;
        }
        incoming.finish().map(|()| incoming)
    }

    #[test]
    fn lines_are_read_whatever_the_pieces_in_which_they_come() {
        let file = format!("\n{LINE}\r\n{{\"end\":{{}}}}\n{LINE}");
        for piece in [1, 2, 7, 80, 1000] {
            let read = read(&file, 1, piece).expect("a file");
            assert_eq!(read.lines, [2, 4]);
            assert_eq!(read.messages[0].body, "a");
        }
    }

    #[test]
    fn a_line_that_is_none_is_named_before_the_file_ends() {
        let file = format!("{LINE}\n\n{{}}\n{LINE}");
        for piece in [1, 1000] {
            let wrong = read(&file, 11, piece).expect_err("a line of nothing");
            let wrong = wrong.detail();
            assert!(wrong.starts_with("line 13: "), "{wrong}");
        }
        let mut incoming = Incoming::new(1);
        assert!(incoming.take(b"{}\nand more").is_err());
    }
}
