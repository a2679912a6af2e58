//! `dlx-proxy status` and `dlx-proxy watch`.

use std::fmt::Write as _;
use std::io::{Write as _, stdout};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use humantime_serde::re::humantime::format_duration;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::print::of_state;
use super::request::path;
use super::{Failed, Outcome, Query, Said};
use crate::console::admin::client::Client;
use crate::console::cli::{Output, Place, Watch};
use crate::console::columns::{Screen, aligned};
use crate::console::count::count;
use crate::plain;

const BETWEEN_STATUS: Duration = Duration::from_secs(5);
const BEFORE_ANOTHER_TRY: Duration = Duration::from_secs(1);

pub async fn status(client: &Client, place: &Place) -> Result<(Said, Outcome), Failed> {
    let answer = client.get(&path(client, [&"status"])).await?;
    let outcome = match answer["healthy"].as_bool().ok_or(Failed::Strange)? {
        true => Outcome::All,
        false => Outcome::Unhealthy,
    };
    let said = match place.printing.output {
        Output::Json => Said::of(&answer, &place.printing, None)?,
        Output::Table | Output::Tsv => {
            let screen = Screen::of_stdout(place.printing.color);
            Said::text(text(&answer, screen), &answer)
        }
    };
    Ok((said, outcome))
}

fn text(answer: &Value, screen: Screen) -> String {
    let mut text = sentence(answer, screen) + "\n";
    for problem in answer["problems"].as_array().into_iter().flatten() {
        let part = |name: &str| plain::line(problem[name].as_str().unwrap_or_default());
        let advice = part("advice");
        let _ = writeln!(text, "  - {} {advice}", part("says")); // a String takes all
    }
    let row = |name: &str, value: String| [name.to_owned(), value];
    let (proxy, broker) = (&answer["proxy"], &answer["broker"]);
    let ready = match proxy["ready"] == true {
        true => "ready",
        false => "not ready",
    };
    let seconds = proxy["uptime-seconds"].as_u64().unwrap_or(0);
    let up = format_duration(Duration::from_secs(seconds));
    let (name, version) = (word(&proxy["name"]), word(&proxy["version"]));
    let rows = [
        row("proxy", format!("{name} {version}, {ready}, up {up}")),
        row("broker", broker_in_words(broker)),
        row("queues", counts(&answer["queues"])),
        row("dead letters", counts(&answer["dead-letters"])),
        row("parked", parked(&answer["parked"])),
        row("retries", counts(&answer["retries"])),
        row("redrives", counts(&answer["redrives"])),
        row("as of", word(&answer["as-of"])),
    ];
    text + "\n" + &aligned(&rows)
}

/// Whether something is wrong, in one line.
fn sentence(answer: &Value, screen: Screen) -> String {
    let problems = answer["problems"].as_array().map_or(0, Vec::len);
    let (color, text) = match (answer["healthy"] == true, problems) {
        (true, _) => (AnsiColor::Green, "Healthy.".to_owned()),
        (false, some) => (AnsiColor::Red, count(some as u64, "problem") + ":"),
    };
    screen.paint(color.on_default().bold(), &text)
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => plain::line(text),
        other => other.to_string(),
    }
}

fn broker_in_words(broker: &Value) -> String {
    let alarms = broker["alarms"].as_array().map_or(&[][..], |alarms| alarms);
    let alarms = match alarms {
        [] => "no alarms".to_owned(),
        some => {
            let some: Vec<_> = some.iter().map(word).collect();
            format!("alarms: {}", some.join(", "))
        }
    };
    let (version, node) = (word(&broker["version"]), word(&broker["node"]));
    format!("RabbitMQ {version} on {node}, {alarms}")
}

fn counts(of: &Value) -> String {
    let words = |(name, value): (&String, &Value)| match (name.as_str(), value.as_u64()) {
        (name, None) => format!("{} unknown", plain::line(name)),
        ("last-hour", Some(died)) => format!("{died} in the last hour"),
        ("messages", Some(number)) => count(number, "message"),
        ("queues", Some(number)) => count(number, "queue"),
        (state, Some(number)) => format!("{number} {}", plain::line(state)),
    };
    let all: Vec<_> = of.as_object().into_iter().flatten().map(words).collect();
    match all.is_empty() {
        true => "unknown".to_owned(),
        false => all.join(", "),
    }
}

fn parked(of: &Value) -> String {
    let parked = of.as_array().into_iter().flatten();
    let parked = parked.map(|it| format!("{} {}", it["messages"], word(&it["cause"])));
    match parked.collect::<Vec<_>>() {
        none if none.is_empty() => "none".to_owned(),
        some => some.join(", "),
    }
}

/// Shows each message that dies, until Ctrl-C, or until nobody reads it.
///
/// # Errors
/// No answer at the beginning, or one that does not pass.
pub async fn watch(client: &Client, asked: &Watch) -> Result<(Said, Outcome), Failed> {
    let printing = &asked.place.printing;
    let screen = Screen::of_stdout(printing.color);
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failed::NoSignals)?;
    let first = client.get(&path(client, [&"status"])).await?;
    let line = in_one_line(&first, screen);
    let bar = ProgressBar::new_spinner(); // the status line, if standard error is a terminal
    if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
        bar.set_style(style);
    }
    match bar.is_hidden() {
        true => eprintln!("{line}"),
        false => bar.set_message(line),
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    let following = follow(client, asked, |line| {
        bar.suspend(|| writeln!(stdout(), "{line}")).is_ok()
    });
    let refreshing = async {
        loop {
            sleep(BETWEEN_STATUS).await;
            bar.set_message(match client.get(&path(client, [&"status"])).await {
                Ok(answer) => in_one_line(&answer, screen),
                Err(error) => plain::line(&error.to_string()),
            });
        }
    };
    let ended = tokio::select! {
        ended = following => ended,
        never = refreshing => never,
        _ = interrupted.recv() => Ok(()),
    };
    bar.finish_and_clear();
    ended.map(|()| (Said::default(), Outcome::All))
}

fn in_one_line(answer: &Value, screen: Screen) -> String {
    let first = answer["problems"][0]["says"].as_str().unwrap_or_default();
    let dead = format!("Dead letters: {}.", counts(&answer["dead-letters"]));
    let parts = [sentence(answer, screen), plain::line(first), dead];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ") + " Ctrl-C ends."
}

async fn follow(
    client: &Client,
    asked: &Watch,
    show: impl Fn(String) -> bool,
) -> Result<(), Failed> {
    let printing = &asked.place.printing;
    let screen = Screen::of_stdout(printing.color);
    let mut after = None;
    loop {
        let mut query = Query::default();
        if let Some(queue) = &asked.queue {
            query.add("queue", queue);
        }
        if let Some(after) = &after {
            query.add("after", after);
        }
        let path = path(client, [&"deaths"]) + &query.text();
        let mut is_read = true;
        let followed = client.events(&path, |event| {
            for line in event.lines() {
                if let Some(id) = line.strip_prefix("id: ") {
                    after = Some(id.to_owned());
                } else if let Some(data) = line.strip_prefix("data: ") {
                    is_read &= show(match printing.output {
                        Output::Json => plain::json(data),
                        Output::Table | Output::Tsv => death(data, event, screen),
                    });
                }
            }
            is_read
        });
        match followed.await {
            Ok(()) if is_read => {}
            Ok(()) => return Ok(()), // as of `head`
            Err(why) if why.may_pass() && after.is_some() => sleep(BEFORE_ANOTHER_TRY).await,
            Err(why) => return Err(why.into()),
        }
    }
}

fn death(data: &str, event: &str, screen: Screen) -> String {
    let told: Value = serde_json::from_str(data).unwrap_or_default();
    if !event.contains("event: death\n") {
        return match told.as_str() {
            Some(problem) => plain::line(problem),
            None => "… more died than can be shown".to_owned(),
        };
    }
    let target = match told["exchange"].as_str() {
        Some("") => format!("queue {}", word(&told["routing-key"])),
        _ => format!("{}/{}", word(&told["exchange"]), word(&told["routing-key"])),
    };
    let outcome = word(&told["outcome"]);
    let cause = told["cause"]
        .as_str()
        .map(|cause| format!(": {}", plain::line(cause)));
    let by = told["rejected-by"]["connection"].as_str();
    let by = by.map(|by| format!("  by {}", plain::line(by)));
    format!(
        "{}  {}  {}  → {target}  {}{}{}",
        screen.paint(Style::new().dimmed(), &word(&told["time"])),
        word(&told["queue"]),
        word(&told["reason"]),
        screen.paint(of_state(&outcome), &outcome),
        cause.unwrap_or_default(),
        by.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_is_one_screen() {
        let answer = json!({
            "healthy": false,
            "problems": [{"says": "Parking queue holds 12 messages: exchange `x` does not exist.", "advice": "Declare it."}],
            "as-of": "2026-11-28T02:30:00Z",
            "proxy": {"name": "web\u{1b}", "version": "0.3.0", "ready": true, "uptime-seconds": 90},
            "broker": {"version": "4.3.6", "node": null, "alarms": ["memory"]},
            "queues": {"full": 3, "unknown": 0},
            "dead-letters": {"last-hour": 5, "messages": null, "queues": 1},
            "parked": [{"cause": "no_exchange", "messages": 12}],
            "retries": {"due": null, "waiting": null}, "redrives": {"running": 1}, "notes": [],
        });
        insta::assert_snapshot!(text(&answer, Screen::default()), @r"
        1 problem:
          - Parking queue holds 12 messages: exchange `x` does not exist. Declare it.

        proxy         web\u{1b} 0.3.0, ready, up 1m 30s
        broker        RabbitMQ 4.3.6 on unknown, alarms: memory
        queues        3 full, 0 unknown
        dead letters  5 in the last hour, messages unknown, 1 queue
        parked        12 no_exchange
        retries       due unknown, waiting unknown
        redrives      1 running
        as of         2026-11-28T02:30:00Z
        ");
    }

    #[test]
    fn each_death_is_a_line() {
        let told = json!({"time": "T", "queue": "orders\n", "reason": "rejected", "exchange": "", "routing-key": "dead",
            "outcome": "parked", "cause": "no_queue", "rejected-by": {"connection": "worker"}});
        let line = death(&told.to_string(), "event: death\n", Screen::default());
        assert_eq!(
            line,
            r"T  orders\n  rejected  → queue dead  parked: no_queue  by worker"
        );
    }
}
