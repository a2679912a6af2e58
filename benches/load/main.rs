//! `make bench`: what does the proxy cost, and how fast are its dead letters?
//!
//! The same load goes to real brokers directly, through haproxy in TCP mode or a bare relay, and through `dlx-proxy run`, in turns within one run.
//! It is judged by ratios: figures of different runs or machines say little. `scenes` has the table of all that is measured; most of it runs on all
//! brokers, the rest on the newest.
//!
//! `cargo bench --bench load -- WORD…`: only scenes whose name contains a word, as in `part: scene` (`latency`, `flood`, `: nack`, …).
//! Environment: `DLX_TEST_BROKERS`, `BENCH_BROKER` (a version, `oldest`, `newest`), `BENCH_SMALL`, `BENCH_ROUNDS`, `BENCH_PAGE` (a file for the tables),
//! `BENCH_HAPROXY_NBTHREAD`, `DLX_TEST_PROXY`, `DLX_PROXY_MODE`; `BENCH_MESSAGES` of a redrive, `BENCH_CONNECTIONS`, `BENCH_WAITING` retries,
//! `BENCH_PROXIES` of a fleet, `BENCH_ALTERATIONS`; `BENCH_OLD`: the binary of another revision, which is compared with this one and nothing else.

mod alterations;
#[path = "../../tests/support/calls.rs"]
#[expect(dead_code, reason = "tests need more of it")]
mod calls;
mod client;
mod confirms;
mod connections;
mod deaths;
mod encrypted;
mod fleet;
mod floods;
mod lab;
mod page;
mod process;
mod redrives;
mod relay;
mod report;
mod scenes;
mod settings;
mod stream;
mod traffic;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::lab::{Lab, Way};
use crate::page::Page;
use crate::report::{Table, interleave};
use crate::scenes::{PARTS, Part};
use crate::settings::Settings;

fn main() -> ExitCode {
    match Settings::read().and_then(|settings| run(&settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: &Settings) -> anyhow::Result<()> {
    let begun = Instant::now();
    let brokers = settings.brokers.iter();
    let labs = brokers.map(|broker| Lab::start(settings, broker));
    let labs = labs.collect::<anyhow::Result<Vec<_>>>()?;
    let mut page = Page::new(&labs)?;
    // The management API costs the broker what no other scene should measure: what needs it has a run of its own.
    let managed = settings
        .brokers
        .iter()
        .any(|broker| broker.management.is_some());
    let wanted = |part: &&Part| managed == part.is_managed() || settings.small;
    for part in PARTS.iter().filter(wanted) {
        if let Some(table) = measure(part, &labs)? {
            page.add(part.title, part.words, &table);
        }
    }
    labs.iter().try_for_each(deaths::clean_intake)?;
    let failed = page.end(settings, begun.elapsed())?;
    ensure!(failed == 0, "{failed} series failed, see above");
    Ok(())
}

/// None: no scene of it was asked for.
fn measure(part: &Part, labs: &[Lab<'_>]) -> anyhow::Result<Option<Table>> {
    let newest = labs.last().context("no broker")?;
    let settings = newest.settings;
    let (ways, base) = match &settings.old {
        Some(_) if !part.ways.contains(&Way::Proxy) => return Ok(None),
        Some(_) => (&[Way::Old, Way::Proxy][..], Way::Old),
        None => (part.ways, part.base),
    };
    let mut table = Table::new(ways, base);
    for scene in part.scenes {
        let name = format!("{}: {}", part.title, scene.name).to_lowercase();
        let only = &settings.only;
        if !(only.is_empty() || only.iter().any(|word| name.contains(&**word))) {
            continue;
        }
        let rounds = scene.rounds.unwrap_or(settings.scale.rounds);
        for lab in labs {
            if scene.newest && !std::ptr::eq(lab, newest) {
                continue;
            }
            let begun = Instant::now();
            let all = interleave(rounds, ways, |way| scene.load.run(lab, way));
            eprintln!(
                "{}, {}: {:.0?}",
                scene.name,
                lab.broker.version,
                begun.elapsed()
            );
            table.rows(scene.name, &lab.broker.version, scene.figures, &all);
        }
    }
    Ok((!table.is_empty()).then_some(table))
}
