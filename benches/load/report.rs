//! From the rounds of each way to medians, ratios, verdicts and tables.

use std::fmt;

use crate::lab::Way;

/// What one run measured. A way that has no part in a scene measures nothing.
pub(crate) type Figures = Vec<(Figure, f64)>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    Rate,
    Cpu,
    BrokerCpu,
    P50,
    P99,
    Longest,
    /// What a flood did.
    Floods,
    First,
    Page,
    Each,
    Memory,
    Peak,
    /// Of alterations.
    Tries,
    Done,
    Pause,
    /// Of a fleet.
    Connections,
    Channels,
    Queues,
    Requests,
    BrokerMemory,
    BrokerShare,
    ProxyMemory,
    ProxyShare,
}

/// What a figure of the last way should be.
#[derive(Clone, Copy)]
pub(crate) enum Bar {
    None,
    /// At most so many times what the way has that it is compared with.
    Most(f64),
    Least(f64),
    /// At most so much.
    UpTo(f64),
}

/// All rounds of one way in one scene.
pub(crate) struct Series {
    way: Way,
    rounds: Vec<Figures>,
    /// Why it has no more rounds.
    failure: Option<String>,
}

/// In Markdown, and for the terminal. The first three columns are text.
pub(crate) struct Table {
    ways: Vec<Way>,
    base: Way,
    rows: Vec<Vec<String>>,
    /// How many bars were met, and missed.
    pub(crate) met: [usize; 2],
    pub(crate) failed: usize,
}

/// Gives each way its turn, then all again: what else the machine does in that time meets all of them alike.
///
/// A way that fails is not asked again in this scene.
pub(crate) fn interleave(
    rounds: usize,
    ways: &[Way],
    run: impl Fn(Way) -> anyhow::Result<Figures>,
) -> Vec<Series> {
    let series = |way: &Way| Series {
        way: *way,
        rounds: Vec::new(),
        failure: None,
    };
    let mut all: Vec<Series> = ways.iter().map(series).collect();
    for round in 0..rounds {
        for turn in 0..ways.len() {
            // Each begins once: a run may profit, or suffer, from what the one before it left behind in the broker.
            let series = &mut all[(round + turn) % ways.len()];
            if series.failure.is_some() {
                continue;
            }
            match run(series.way) {
                Ok(figures) => series.rounds.push(figures),
                Err(error) => {
                    eprintln!("{}: {error:#}", series.way);
                    series.failure = Some(format!("{error:#}"));
                }
            }
        }
    }
    all
}

/// The middle one, or the mean of the two in the middle; not a number when there is none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.get(values.len() / 2)) {
        (_, None) => f64::NAN,
        (n, Some(middle)) if n % 2 == 1 => *middle,
        (n, Some(middle)) => (values[n / 2 - 1] + middle) / 2.0,
    }
}

/// Of values in order; not a number when there is none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let at = values.len() * percent / 100;
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// A number for people: about three digits, thousands apart.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    if value < 100.0 && value.fract() != 0.0 {
        return format!("{value:.*}", if value < 10.0 { 2 } else { 1 });
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Figure::Rate => "messages/s",
            Figure::Cpu => "processor, µs",
            Figure::BrokerCpu => "broker's processor, µs",
            Figure::P50 => "p50, µs",
            Figure::P99 => "p99, µs",
            Figure::Longest => "longest pause, ms",
            Figure::Floods => "of the flood, a second",
            Figure::First => "first 100 listed, ms",
            Figure::Page => "first 100 on a page, ms",
            Figure::Each => "memory of each, KiB",
            Figure::Memory => "memory, MiB",
            Figure::Peak => "memory at most, MiB",
            Figure::Tries => "tries",
            Figure::Done => "altered",
            Figure::Pause => "clients wait at most, ms",
            Figure::Connections => "connections",
            Figure::Channels => "channels",
            Figure::Queues => "queues",
            Figure::Requests => "management requests a second",
            Figure::BrokerMemory => "broker's memory, MiB",
            Figure::BrokerShare => "broker's processor, % of a core",
            Figure::ProxyMemory => "memory of each proxy, MiB",
            Figure::ProxyShare => "processor of each proxy, % of a core",
        })
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::None => Ok(()),
            Bar::Most(ratio) => write!(f, "≤ {ratio:.2}"),
            Bar::Least(ratio) => write!(f, "≥ {ratio:.2}"),
            Bar::UpTo(value) => write!(f, "≤ {}", number(*value)),
        }
    }
}

// === impl Series ===

impl Series {
    fn values(&self, figure: Figure) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |figures| {
            let found = figures.iter().find(|(name, _)| *name == figure);
            found.map_or(f64::NAN, |(_, value)| *value)
        })
    }

    /// The median; of what should never be long, the longest.
    fn of(&self, figure: Figure) -> f64 {
        match figure {
            Figure::Longest => self.values(figure).fold(f64::NAN, f64::max),
            _ => median(
                self.values(figure)
                    .filter(|value| value.is_finite())
                    .collect(),
            ),
        }
    }

    /// The rounds' ratios to `base`, in order.
    fn ratios(&self, base: &Series, figure: Figure) -> Vec<f64> {
        let both = self.values(figure).zip(base.values(figure));
        let ratios = both.map(|(own, base)| own / base);
        let mut ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

// === impl Table ===

impl Table {
    /// The last way is the one that is judged, by its ratio to `base`.
    pub(crate) fn new(ways: &[Way], base: Way) -> Table {
        let mut head = vec![String::new(), "RabbitMQ".into(), String::new()];
        head.extend(ways.iter().map(Way::to_string));
        head.extend([format!("ratio to {base}"), "bar".into(), String::new()]);
        let (ways, rows) = (ways.to_vec(), vec![head]);
        Table {
            ways,
            base,
            rows,
            met: [0; 2],
            failed: 0,
        }
    }

    /// The rows of one scene on one broker. Between two revisions there is no bar.
    pub(crate) fn rows(
        &mut self,
        scene: &str,
        broker: &str,
        figures: &[(Figure, Bar)],
        all: &[Series],
    ) {
        let failed = all.iter().filter(|series| series.failure.is_some()).count();
        self.failed += failed;
        for (i, (figure, bar)) in figures.iter().enumerate() {
            let name = |text: &str| {
                if i == 0 {
                    text.to_owned()
                } else {
                    String::new()
                }
            };
            let mut cells = vec![name(scene), name(broker), figure.to_string()];
            cells.extend(all.iter().map(|series| match series.failure {
                Some(_) => "failed".into(),
                None => number(series.of(*figure)),
            }));
            let base = all.iter().find(|series| series.way == self.base);
            let own = all.last();
            let ratios = match own.zip(base) {
                Some((own, base)) if failed == 0 && self.ways.len() > 1 => {
                    own.ratios(base, *figure)
                }
                _ => Vec::new(),
            };
            let ratio = median(ratios.clone());
            cells.push(match (ratios.first(), ratios.last()) {
                (Some(low), Some(high)) if ratios.len() > 1 => {
                    format!("{ratio:.2} ({low:.2}–{high:.2})")
                }
                (Some(one), _) => format!("{one:.2}"),
                _ => "–".into(),
            });
            // As it is printed, so that nobody sees 0.92 miss 0.92.
            let ratio = (ratio * 100.0).round() / 100.0;
            let bar = if self.base == Way::Old {
                &Bar::None
            } else {
                bar
            };
            let met = match bar {
                Bar::None => None,
                Bar::Most(most) => Some(ratio <= *most),
                Bar::Least(least) => Some(ratio >= *least),
                Bar::UpTo(most) => Some(own.is_some_and(|own| own.of(*figure) <= *most)),
            };
            cells.push(bar.to_string());
            cells.push(
                met.map_or("", |met| if met { "met" } else { "**missed**" })
                    .into(),
            );
            self.met[0] += usize::from(met == Some(true));
            self.met[1] += usize::from(met == Some(false));
            self.rows.push(cells);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
                .max(2)
        };
        for (i, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let width = width(column);
                match column < 3 {
                    true => write!(f, "| {cell:<width$} ")?,
                    false => write!(f, "| {cell:>width$} ")?,
                }
            }
            writeln!(f, "|")?;
            if i == 0 {
                for column in 0..columns {
                    let dashes = "-".repeat(width(column) + 1);
                    write!(f, "|{dashes}{}", if column < 3 { "-" } else { ":" })?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}
