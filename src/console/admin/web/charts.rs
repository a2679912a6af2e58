//! Deaths per minute as small charts: one for each queue and reason, drawn here, so that no script is needed.

use maud::{Markup, html};

use super::text;
use crate::known::{MINUTES, MOST_SERIES, Rate};

const MOST: usize = 20;
/// Width of a bar with its gap.
const WIDTH: usize = 4;
const HEIGHT: u64 = 32;

pub(super) fn deaths(rates: &[Rate]) -> Markup {
    let mut rates: Vec<_> = rates.iter().map(|rate| (sum(rate), rate)).collect();
    rates.retain(|(sum, _)| *sum > 0);
    rates.sort_by_key(|(sum, _)| std::cmp::Reverse(*sum));
    let (shown, rest) = rates.split_at(rates.len().min(MOST));
    html! {
        @if shown.is_empty() { p { "No message died in a queue that you may read, as far as this proxy knows." } }
        @else {
            table.stacked {
                thead { tr {
                    th scope="col" { "Queue" } th scope="col" { "Reason" } th.number scope="col" { "Deaths" }
                    th.number scope="col" { "At most in a minute" } th scope="col" { "Each minute of the last " (MINUTES) }
                } }
                tbody { @for (sum, rate) in shown {
                    tr {
                        td data-label="Queue" {
                            @match &rate.queue {
                                Some(queue) => (text::name(&queue.to_string())),
                                None => span.none { "queues beyond the first " (MOST_SERIES) },
                            }
                        }
                        td data-label="Reason" { (rate.reason.as_str()) }
                        td.number data-label="Deaths" { (text::number(*sum)) }
                        td.number data-label="At most in a minute" { (text::number(peak(&rate.per_minute))) }
                        td.wide data-label="Each minute" { (chart(&rate.per_minute)) }
                    }
                } }
            }
        }
        @if !rest.is_empty() {
            p { (text::number(rest.iter().map(|(sum, _)| sum).sum())) " more in " (text::number(rest.len() as u64)) " further queues and reasons." }
        }
    }
}

fn sum(rate: &Rate) -> u64 {
    rate.per_minute.iter().map(|count| u64::from(*count)).sum()
}

fn peak(per_minute: &[u32; MINUTES]) -> u64 {
    per_minute.iter().copied().max().unwrap_or(0).into()
}

pub(super) fn chart(per_minute: &[u32; MINUTES]) -> Markup {
    let sum: u64 = per_minute.iter().map(|count| u64::from(*count)).sum();
    let peak = peak(per_minute).max(1);
    let height = |count: u32| (u64::from(count) * HEIGHT).div_ceil(peak);
    let bars = per_minute.iter().enumerate();
    let bars = bars.filter(|(_, count)| **count > 0);
    let bars = bars.map(|(minute, count)| (minute * WIDTH, height(*count)));
    let in_words = format!(
        "{sum} deaths in {MINUTES} minutes, at most {peak} in one, {}",
        last(per_minute)
    );
    html! {
        svg.chart role="img" aria-label=(in_words) viewBox=(format!("0 0 {} {HEIGHT}", MINUTES * WIDTH)) preserveAspectRatio="none" {
            @for (x, height) in bars {
                rect x=(x) y=(HEIGHT - height) width=(WIDTH - 1) height=(height) {}
            }
        }
    }
}

fn last(per_minute: &[u32; MINUTES]) -> String {
    let ago = per_minute.iter().rev().position(|count| *count > 0);
    match ago.unwrap_or(0) {
        0 => "the last one within this minute".to_owned(),
        1 => "the last one a minute ago".to_owned(),
        ago => format!("the last one {ago} minutes ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;
    use crate::machine::Reason;

    /// Deaths in these minutes.
    fn rate(queue: &str, counts: &[(usize, u32)]) -> Rate {
        let mut per_minute = [0; MINUTES];
        counts
            .iter()
            .for_each(|(minute, count)| per_minute[*minute] = *count);
        Rate {
            queue: Some(name(queue)),
            reason: Reason::Expired,
            per_minute,
        }
    }

    #[test]
    fn a_chart_has_a_bar_for_each_minute_with_deaths_and_says_it_in_words() {
        let chart = chart(&rate("q", &[(0, 1), (57, 1000)]).per_minute).into_string();
        assert_eq!(chart.matches("<rect").count(), 2);
        for part in [
            "<rect x=\"0\" y=\"31\" width=\"3\" height=\"1\">",
            "<rect x=\"228\" y=\"0\" width=\"3\" height=\"32\">",
            "1001 deaths in 60 minutes, at most 1000 in one, the last one 2 minutes ago",
        ] {
            assert!(chart.contains(part), "{part} in {chart}");
        }
    }

    #[test]
    fn the_greatest_are_shown_and_the_rest_is_counted() {
        let rates: Vec<_> = (0..30)
            .map(|number| rate(&format!("<{number}>"), &[(59, number)]))
            .collect();
        let page = deaths(&rates).into_string();
        assert_eq!(page.matches("<svg").count(), MOST);
        let of_the_greatest = page.contains("&lt;29&gt;") && !page.contains("&lt;9&gt;");
        assert!(of_the_greatest, "{page}");
        assert!(page.contains("45 more in 9 further"), "{page}");
        let none = deaths(&rates[..1]).into_string();
        assert!(none.contains("No message died"), "{none}");
    }
}
