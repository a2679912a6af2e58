//! Draws the picture of the README, for light and for dark pages, from `docs/two-paths.txt`. The notation is at the head of that file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::{assert_made_from_code, text_of};

/// Pixels from the left and from the top.
type Point = (i32, i32);

#[derive(Clone, Copy)]
struct Rectangle {
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

/// The colours of a page.
struct Theme {
    name: &'static str,
    page: &'static str,
    text: &'static str,
    faint: &'static str,
    line: &'static str,
    group: &'static str,
    reject: &'static str,
    expiry: &'static str,
}

const THEMES: [Theme; 2] = [
    Theme {
        name: "light",
        page: "#ffffff",
        text: "#1f2328",
        faint: "#59636e",
        line: "#818b98",
        group: "#f6f8fa",
        reject: "#bc4c00",
        expiry: "#0969da",
    },
    Theme {
        name: "dark",
        page: "#0d1117",
        text: "#f0f6fc",
        faint: "#9198a1",
        line: "#656c76",
        group: "#151b23",
        reject: "#f0883e",
        expiry: "#58a6ff",
    },
];

const BADGE: i32 = 9;

#[test]
fn the_picture_is_what_its_text_says() {
    let text = text_of("docs/two-paths.txt");
    for theme in &THEMES {
        let path = format!("docs/two-paths-{}.svg", theme.name);
        assert_made_from_code(&path, &draw(&text, theme));
    }
}

fn draw(text: &str, theme: &Theme) -> String {
    let mut boxes = BTreeMap::new();
    let mut drawing = Drawing {
        theme,
        svg: String::new(),
        legend: (0, 0),
    };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (head, tail) = line.split_once(':').unwrap_or((line, ""));
        let tail = tail.trim();
        let words: Vec<_> = head.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["size", width, height] => drawing.begin(number(width), number(height)),
            ["title", ..] => {
                let title = line.trim_start_matches("title ");
                drawing.add(&format!("<title>{}</title>", escaped(title)));
            }
            [kind @ ("group" | "box"), name, x, y, width, height] => {
                let [x, y, width, height] = [x, y, width, height].map(number);
                let rectangle = Rectangle {
                    x,
                    y,
                    width,
                    height,
                };
                drawing.rectangle(kind == "group", rectangle, tail);
                boxes.insert(name, rectangle);
            }
            ["arrow", colour, from, kind, to, "at", at, ref badges @ ..] => {
                let (begin, end) = between(boxes[from], boxes[to], number(at));
                drawing.line(colour, kind, begin, end);
                drawing.label(begin, end, badges, tail);
            }
            ["legend", colour, x, y] => drawing.heading(colour, number(x), number(y), tail),
            _ => drawing.legend(line),
        }
    }
    drawing.svg + "</svg>\n"
}

struct Drawing<'a> {
    theme: &'a Theme,
    svg: String,
    /// Where the last line of the legend stands.
    legend: Point,
}

impl Drawing<'_> {
    fn add(&mut self, element: &str) {
        writeln!(self.svg, "  {element}").expect("a String takes all");
    }

    fn begin(&mut self, width: i32, height: i32) {
        let page = self.theme.page;
        self.svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
        );
        self.add(&format!(
            "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{page}\"/>"
        ));
    }

    fn rectangle(&mut self, group: bool, rectangle: Rectangle, words: &str) {
        let Theme {
            page,
            line,
            group: tint,
            ..
        } = self.theme;
        let Rectangle {
            x,
            y,
            width,
            height,
        } = rectangle;
        let fill = if group { tint } else { page };
        self.add(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{fill}\" stroke=\"{line}\"/>"
        ));
        let (title, second) = words.split_once(" | ").unwrap_or((words, ""));
        let middle = x + width / 2;
        let base = match (group, second) {
            (true, _) => y + 25,
            (false, "") => y + height / 2 + 5,
            (false, _) => y + height / 2 - 2,
        };
        self.text(middle, base, "middle", true, self.theme.text, title);
        if !second.is_empty() {
            self.text(middle, base + 18, "middle", false, self.theme.faint, second);
        }
    }

    fn line(&mut self, colour: &str, kind: &str, begin: Point, end: Point) {
        let stroke = self.colour(colour);
        let dashes = match kind {
            "-->" => " stroke-dasharray=\"5 4\"",
            _ => "",
        };
        let ((x1, y1), (x2, y2)) = (begin, end);
        self.add(&format!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{stroke}\" stroke-width=\"1.6\"{dashes}/>"
        ));
        self.head(begin, end, stroke);
        if kind == "<->" {
            self.head(end, begin, stroke);
        }
    }

    /// Badges on the line, where it begins; words above it, between them and its head.
    fn label(&mut self, begin: Point, end: Point, badges: &[&str], words: &str) {
        let ((x1, y1), (x2, y2)) = (begin, end);
        let (across, down) = ((x2 - x1).signum(), (y2 - y1).signum());
        // Beside the edge of the group, if the line leaves one.
        let edge = if down == 0 { 15 } else { 0 };
        let mut far = edge;
        for badge in badges {
            far += 20;
            let badge = badge.trim_matches(['[', ']']);
            self.badge(x1 + across * far, y1 + down * far, badge);
        }
        let middle = (x1 + across * far + x2 - across * edge) / 2;
        self.text(middle, y1 - 6, "middle", false, self.theme.text, words);
    }

    fn head(&mut self, from: Point, (x, y): Point, fill: &str) {
        let (across, down) = ((x - from.0).signum(), (y - from.1).signum());
        let (back_x, back_y) = (x - 9 * across, y - 9 * down);
        let (wide_x, wide_y) = (4 * down, 4 * across);
        self.add(&format!(
            "<path d=\"M{x} {y}L{} {}L{} {}Z\" fill=\"{fill}\"/>",
            back_x + wide_x,
            back_y + wide_y,
            back_x - wide_x,
            back_y - wide_y
        ));
    }

    fn badge(&mut self, x: i32, y: i32, badge: &str) {
        let colour = match badge.starts_with(|c: char| c.is_ascii_digit()) {
            true => self.theme.reject,
            false => self.theme.expiry,
        };
        self.add(&format!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{BADGE}\" fill=\"{colour}\"/>"
        ));
        self.text(x, y + 4, "middle", true, self.theme.page, badge);
    }

    fn heading(&mut self, colour: &str, x: i32, y: i32, heading: &str) {
        self.text(x, y, "start", true, self.colour(colour), heading);
        self.legend = (x, y);
    }

    /// Badges, then what they mean.
    fn legend(&mut self, line: &str) {
        let (x, y) = (self.legend.0, self.legend.1 + 22);
        self.legend.1 = y;
        let mut words = line.trim();
        let mut right = x;
        while let Some((badge, rest)) = words.split_once(' ').filter(|(badge, _)| badge.len() == 1)
        {
            self.badge(right + BADGE, y - 4, badge);
            right += 2 * BADGE + 4;
            words = rest;
        }
        self.text(right + 2, y, "start", false, self.theme.text, words);
    }

    fn text(&mut self, x: i32, y: i32, anchor: &str, bold: bool, colour: &str, words: &str) {
        if words.is_empty() {
            return;
        }
        let weight = if bold { " font-weight=\"600\"" } else { "" };
        let words = escaped(words);
        self.add(&format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{weight} fill=\"{colour}\">{words}</text>"
        ));
    }

    fn colour(&self, name: &str) -> &'static str {
        match name {
            "reject" => self.theme.reject,
            "expiry" => self.theme.expiry,
            "plain" => self.theme.line,
            _ => unreachable!("no colour is called {name}"),
        }
    }
}

/// From edge to edge: downwards when the one stands above the other, else to the right or to the left.
fn between(from: Rectangle, to: Rectangle, at: i32) -> (Point, Point) {
    let (x, y) = (from.x + at, from.y + at);
    let share_columns = from.x < to.x + to.width && to.x < from.x + from.width;
    match () {
        () if share_columns => ((x, from.y + from.height), (x, to.y)),
        () if from.x < to.x => ((from.x + from.width, y), (to.x, y)),
        () => ((from.x, y), (to.x + to.width, y)),
    }
}

fn number(word: &str) -> i32 {
    word.parse().expect("a number of pixels")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
