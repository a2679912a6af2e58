//! The words of a block: `verb name=value flag`, where blanks within quotes and brackets belong to a value.

/// One line.
pub(crate) struct Words {
    pub(crate) verb: String,
    words: Vec<String>,
}

/// Splits at `separator`, but not within quotes, `()` and `[]`.
pub(crate) fn split(text: &str, separator: char) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut depth, mut quoted) = (0, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' if !quoted => depth += 1,
            ')' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        if c == separator && depth == 0 && !quoted {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
    }
    parts.push(part);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The parts of `a, b, ""`, without blanks and quotes around them.
pub(super) fn parts(text: &str) -> Vec<String> {
    let parts = split(text, ',');
    parts
        .iter()
        .map(|part| part.trim().trim_matches('"').to_owned())
        .collect()
}

/// The members of `[a, b]`.
pub(super) fn list(text: &str) -> Vec<String> {
    parts(text.trim_start_matches('[').trim_end_matches(']'))
}

/// The entries of `[q/expired*1 k=[a, b], …]`, quotes and all.
pub(super) fn entries(text: &str) -> Vec<String> {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    split(inner.expect("a list"), ',')
}

/// `a^256` is so many of these, `\n` a line break.
pub(crate) fn spelled(text: &str) -> String {
    match text.split_once('^') {
        Some((part, times)) => part.repeat(times.parse().unwrap()),
        None => text.replace("\\n", "\n"),
    }
}

impl Words {
    pub(crate) fn of(line: &str) -> Words {
        let mut words = split(line, ' ');
        Words {
            verb: words.remove(0).trim().to_owned(),
            words,
        }
    }

    /// The value of the first `name=value` that is left.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self
            .words
            .iter()
            .position(|word| word.split_once('=').is_some_and(|(n, _)| n == name))?;
        let word = self.words.remove(at);
        Some(word[name.len() + 1..].trim_matches('"').to_owned())
    }

    /// The next `h:name=value`.
    pub(crate) fn take_header(&mut self) -> Option<(String, String)> {
        let at = self.words.iter().position(|word| word.starts_with("h:"))?;
        let word = self.words.remove(at);
        let (name, value) = word[2..].split_once('=').expect("h:name=value");
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    }

    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| word == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// What nobody asked for is a mistake in the table.
    pub(crate) fn done(self) {
        assert!(
            self.words.is_empty(),
            "unknown words {:?} of {}",
            self.words,
            self.verb
        );
    }
}
