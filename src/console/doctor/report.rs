//! What was found, for people and for programs.

use serde::Serialize;

use crate::console::columns::aligned;
use crate::plain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Ok,
    /// Worth knowing, but possibly intended.
    Note,
    Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    pub about: String,
    pub says: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
}

// === impl Kind ===

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Ok => "ok",
            Kind::Note => "note",
            Kind::Problem => "problem",
        }
    }
}

// === impl Report ===

impl Report {
    pub(super) fn ok(&mut self, about: impl Into<String>, says: impl Into<String>) {
        self.add(Kind::Ok, about.into(), says.into(), None);
    }

    pub(super) fn note(
        &mut self,
        about: impl Into<String>,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(Kind::Note, about.into(), says.into(), Some(advice.into()));
    }

    pub(super) fn problem(
        &mut self,
        about: impl Into<String>,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(
            Kind::Problem,
            about.into(),
            says.into(),
            Some(advice.into()),
        );
    }

    fn add(&mut self, kind: Kind, about: String, says: String, advice: Option<String>) {
        self.findings.push(Finding {
            kind,
            about,
            says,
            advice,
        });
    }

    pub fn count(&self, kind: Kind) -> usize {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.kind == kind).count()
    }

    pub fn text(&self) -> String {
        let cells = |finding: &Finding| {
            [
                finding.kind.as_str().to_owned(),
                finding.about.clone(),
                finding.says.clone(),
            ]
        };
        let rows: Vec<_> = self.findings.iter().map(cells).collect();
        let mut text = String::new();
        for (line, finding) in aligned(&rows).lines().zip(&self.findings) {
            text += &format!("{line}\n");
            if let Some(advice) = &finding.advice {
                text += &format!("         → {}\n", plain::line(advice));
            }
        }
        let said = |number, one: &str| match number {
            1 => format!("1 {one}"),
            number => format!("{number} {one}s"),
        };
        let (problems, notes) = (self.count(Kind::Problem), self.count(Kind::Note));
        text + &format!("\n{}, {}\n", said(problems, "problem"), said(notes, "note"))
    }

    pub fn json(&self) -> String {
        let value = serde_json::json!({
            "findings": self.findings,
            "problems": self.count(Kind::Problem),
            "notes": self.count(Kind::Note),
        });
        plain::json(&format!("{value:#}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.ok("node rabbit:5672", "It answers.");
        report.problem("vhost /", "Nobody may enter.", "rabbitmqctl …");
        report
    }

    #[test]
    fn people_read_lines_with_what_to_do_below() {
        let text = "\
ok       node rabbit:5672  It answers.
problem  vhost /           Nobody may enter.
         → rabbitmqctl …

1 problem, 0 notes
";
        assert_eq!(report().text(), text);
    }

    /// Any policymaker can choose names of policies.
    #[test]
    fn no_name_writes_lines_or_hides_any() {
        let name = "x\nok       all is well\u{1b}[2J\u{9b}\u{202e}\n";
        let mut report = report();
        report.problem(format!("policy {name}"), name, name);
        report.ok("behind", "It is there.");
        let escaped = r"x\nok       all is well\u{1b}[2J\u{9b}\u{202e}\n";
        let text = report.text();
        assert_eq!(text.lines().count(), 8, "{text}");
        assert_eq!(text.matches(escaped).count(), 3, "{text}");
        assert!(
            text.lines()
                .nth(5)
                .is_some_and(|line| line.starts_with("ok       behind")),
            "{text}"
        );
        let json = report.json();
        let is_plain = |char: char| crate::letter::is_harmless(char) || char == '\n';
        assert!(json.chars().all(is_plain), "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["findings"][2]["says"], name);
        assert_eq!((&read["problems"], &read["notes"]), (&2.into(), &0.into()));
        assert_eq!(read["findings"][1]["kind"], "problem");
        assert_eq!(read["findings"][0].get("advice"), None);
    }
}
