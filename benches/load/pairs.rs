//! Two builds of the proxy side by side, round for round: is the one of today slower than another? `make pairs OLD=REVISION`.

use std::path::Path;

use anyhow::ensure;

use crate::dead_letters::{self, Cause, Scene};
use crate::pass_through;
use crate::process::{PREFIX, Route, Scratch, free_port};
use crate::report::{Series, Table, interleave};
use crate::settings::Settings;

/// Those that cost the proxy most.
const DEATHS: [Cause; 3] = [Cause::Nack(1), Cause::Nack(1000), Cause::Ttl];

/// Measures and prints. `old`: the other binary.
pub(crate) fn run(old: &Path, settings: &Settings, scratch: &Scratch) -> anyhow::Result<()> {
    let direct = Route::direct(settings);
    let route = |name, binary: &Path, prefix: String| {
        let port = free_port()?;
        let environment = [
            ("DLX_PROXY_UPSTREAM", settings.url.clone()),
            ("DLX_PROXY_LISTEN", format!("127.0.0.1:{port}")),
            // Each has an intake queue of its own.
            ("DLX_PROXY_PREFIX", prefix),
        ];
        let route = Route::dlx_proxy_of(binary, name, port, &environment, settings, scratch)?;
        route
            .process
            .as_ref()
            .map_or(Ok(()), |process| process.wait_ready())?;
        anyhow::Ok(route)
    };
    let routes = [
        route("old", old, format!("{PREFIX}-old"))?,
        route("new", &settings.binary, PREFIX.to_owned())?,
    ];
    let scale = settings.scale;
    let mut table = Table::new(["", "", "old", "new", "new : old"]);
    let mut failures = 0;
    let mut rows = |name: &str, all: &[Series]| {
        for (i, metric) in ["a second", "CPU s per million"].into_iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            let mut cells = vec![name.to_owned(), metric.to_owned()];
            cells.extend(all.iter().map(|series| series.figure(i)));
            if let [old, new] = all {
                cells.push(new.ratio(old, i));
            }
            table.row(cells);
        }
        failures += all.iter().filter(|series| series.failed()).count();
    };
    for (name, confirms) in [
        ("throughput no confirms", false),
        ("throughput confirms", true),
    ] {
        if settings.wants(name) {
            for route in &routes {
                pass_through::throughput(route, scale.messages / 10, confirms)?;
            }
            let all = interleave(scale.rounds, &routes, |route| {
                pass_through::throughput(route, scale.messages, confirms)
            });
            rows(name, &all);
        }
    }
    for cause in DEATHS {
        let scene = Scene {
            cause,
            persistent: false,
        };
        let name = format!("dead letters {scene}");
        if settings.wants(&name) {
            let all = interleave(scale.rounds, &routes, |route| {
                dead_letters::run(route, scene, &scale, &direct)
            });
            rows(&name, &all);
        }
    }
    println!(
        "\nTwo builds, {} rounds in turns; a ratio is the median of the rounds' ratios (lowest–highest)\n{table}",
        scale.rounds
    );
    ensure!(failures == 0, "{failures} series failed, see above");
    Ok(())
}
