//! From the rounds of each route to medians, ratios and a table for people.

use std::fmt;

use crate::process::Route;

/// All rounds of one route in one scene.
pub(crate) struct Series {
    /// The route.
    pub(crate) name: &'static str,
    /// Per round the figures, in the order of the scene's metrics; not a number where there is none.
    rounds: Vec<Vec<f64>>,
    /// Why it has no more rounds.
    failure: Option<String>,
}

/// Text in columns: the first is left-aligned, the others right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

/// Gives each route its turn, then all again: what else the machine does in that time meets all of them alike.
///
/// A route that fails is not asked again in this scene.
pub(crate) fn interleave(
    rounds: usize,
    routes: &[Route],
    mut run: impl FnMut(&Route) -> anyhow::Result<Vec<f64>>,
) -> Vec<Series> {
    let ways = routes.iter().map(|route| (route.name, route)).collect();
    interleave_ways(rounds, ways, |route| run(route))
}

/// The same for whatever has a name.
pub(crate) fn interleave_ways<W>(
    rounds: usize,
    ways: Vec<(&'static str, W)>,
    mut run: impl FnMut(&W) -> anyhow::Result<Vec<f64>>,
) -> Vec<Series> {
    let mut all: Vec<Series> = ways
        .iter()
        .map(|(name, _)| Series {
            name,
            rounds: Vec::new(),
            failure: None,
        })
        .collect();
    for round in 0..rounds {
        for turn in 0..ways.len() {
            // Each begins once: a run may profit, or suffer, from what the one before it left behind in the broker.
            let at = (round + turn) % ways.len();
            let (series, (name, way)) = (&mut all[at], &ways[at]);
            if series.failure.is_some() {
                continue;
            }
            match run(way) {
                Ok(figures) => series.rounds.push(figures),
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    series.failure = Some(format!("{error:#}"));
                }
            }
        }
    }
    all
}

/// The middle one, or the mean of the two in the middle; not a number when there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.get(values.len() / 2)) {
        (_, None) => f64::NAN,
        (n, Some(middle)) if n % 2 == 1 => *middle,
        (n, Some(middle)) => (values[n / 2 - 1] + middle) / 2.0,
    }
}

/// A number for people: about three digits, thousands apart.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value < 100.0 {
        return format!("{value:.*}", if value < 10.0 { 2 } else { 1 });
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

// === impl Series ===

impl Series {
    /// Whether it failed in some round.
    pub(crate) fn failed(&self) -> bool {
        self.failure.is_some()
    }

    fn values(&self, metric: usize) -> impl Iterator<Item = f64> {
        self.rounds
            .iter()
            .filter_map(move |figures| figures.get(metric).copied())
    }

    /// The median of a metric, for people.
    pub(crate) fn figure(&self, metric: usize) -> String {
        if self.failed() {
            return "failed".into();
        }
        number(median(self.values(metric).collect()))
    }

    /// The highest of a metric, for people.
    pub(crate) fn highest(&self, metric: usize) -> String {
        match self.failed() {
            true => "failed".into(),
            false => number(self.values(metric).fold(f64::NAN, f64::max)),
        }
    }

    /// The median of the rounds' ratios to `base`, and the lowest and highest of them.
    pub(crate) fn ratio(&self, base: &Series, metric: usize) -> String {
        let mut ratios: Vec<f64> = self
            .values(metric)
            .zip(base.values(metric))
            .map(|(own, base)| own / base)
            .filter(|ratio| ratio.is_finite())
            .collect();
        ratios.sort_by(f64::total_cmp);
        match (ratios.first(), ratios.last()) {
            (Some(low), Some(high)) if !self.failed() && !base.failed() => {
                format!("{:.2} ({low:.2}–{high:.2})", median(ratios.clone()))
            }
            _ => "-".into(),
        }
    }
}

// === impl Table ===

impl Table {
    /// With the names of the columns.
    pub(crate) fn new<'a>(head: impl IntoIterator<Item = &'a str>) -> Table {
        Table {
            rows: vec![head.into_iter().map(str::to_owned).collect()],
        }
    }

    /// One more row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for (i, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for column in 0..columns {
                let cell = row.get(column).map_or("", String::as_str);
                let width = width(column);
                line += &match column {
                    0 => format!("  {cell:<width$}"),
                    _ => format!("   {cell:>width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
            if i == 0 {
                let whole = (0..columns).map(|column| width(column) + 3).sum::<usize>();
                writeln!(f, "  {}", "-".repeat(whole.saturating_sub(3)))?;
            }
        }
        Ok(())
    }
}

/// One row per metric, with the ratio of dlx-proxy to haproxy.
pub(crate) fn compare(table: &mut Table, name: &str, metrics: &[&str], all: &[Series]) {
    let find = |name| all.iter().find(|series| series.name == name);
    for (i, metric) in metrics.iter().enumerate() {
        let mut cells = vec![
            if i == 0 { name.into() } else { String::new() },
            (*metric).into(),
        ];
        cells.extend(all.iter().map(|series| series.figure(i)));
        cells.push(match (find("dlx-proxy"), find("haproxy")) {
            (Some(own), Some(haproxy)) => own.ratio(haproxy, i),
            _ => "-".into(),
        });
        table.row(cells);
    }
}
