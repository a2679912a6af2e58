//! The page of all tables: docs/performance.md, and the terminal.

use std::fs;
use std::time::Duration;

use anyhow::Context;

use crate::lab::Lab;
use crate::process::haproxy_version;
use crate::report::Table;
use crate::settings::Settings;

const HEAD: &str = "# Performance

<!-- Made by `make bench UPDATE=1`. Do not edit. -->

What does the proxy cost? This page is the output of one run. The same load goes to the broker directly, through
HAProxy in TCP mode, and through the proxy. Dead letters are compared with a bare relay. It does the same work, and
nothing else.

- All ways take turns in each round. A figure is the median of all rounds. The longest pause is that of all rounds.
- The ratio is that of the last column, as a median with the lowest and highest round.
- Processor time is per message. It is that of the proxy, unless a row says otherwise.
- HAProxy has one thread, as the proxy has until that one is busy. With a thread for each core, HAProxy's p50 at 10,000
  messages a second is a quarter less, and the other figures of that load hardly differ.
- The bar is what the project asks of itself. A row without a bar is for your information.
- The clients, the broker and the proxies share one machine. So compare columns, not machines.
- More than two cores were not measured.

";

pub(crate) struct Page {
    head: String,
    body: String,
    met: [usize; 2],
    failed: usize,
}

// === impl Page ===

impl Page {
    pub(crate) fn new(labs: &[Lab<'_>]) -> anyhow::Result<Page> {
        let settings = labs.first().context("no broker")?.settings;
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let cores = std::thread::available_parallelism()?;
        let cpus = read("/proc/cpuinfo");
        let model = cpus
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let kernel = read("/proc/sys/kernel/osrelease");
        // Who else is at work? With more than a few tenths here the ratios scatter.
        let load = read("/proc/loadavg");
        let versions: Vec<_> = labs.iter().map(|lab| lab.broker.version.as_str()).collect();
        let head = format!(
            "| | |\n|---|---|\n\
             | machine | {cores} cores, {}, Linux {} |\n\
             | load before the run | {} |\n\
             | RabbitMQ | {} |\n\
             | HAProxy | {}, mode tcp, nbthread {} |\n\
             | dlx-proxy | {}, mode {} |\n\
             | rounds | {} |\n",
            model.unwrap_or("unknown").trim(),
            kernel.trim(),
            load.split(' ').next().unwrap_or("?"),
            versions.join(", "),
            haproxy_version().as_deref().unwrap_or("none"),
            settings.haproxy_threads,
            env!("CARGO_PKG_VERSION"),
            settings.mode,
            settings.scale.rounds,
        );
        print!("{head}");
        for lab in labs {
            lab.about()?;
        }
        if settings.small {
            println!("BENCH_SMALL: everything runs, no figure means anything");
        }
        Ok(Page {
            head,
            body: String::new(),
            met: [0; 2],
            failed: 0,
        })
    }

    pub(crate) fn add(&mut self, title: &str, words: &str, table: &Table) {
        let words = if words.is_empty() {
            String::new()
        } else {
            format!("{words}\n\n")
        };
        let part = format!("## {title}\n\n{words}{table}\n");
        println!("\n{part}");
        self.body += &part;
        self.failed += table.failed;
        for (all, of_table) in self.met.iter_mut().zip(table.met) {
            *all += of_table;
        }
    }

    /// How many series failed: the page says which. It is written only if nothing was left out.
    pub(crate) fn end(self, settings: &Settings, took: Duration) -> anyhow::Result<usize> {
        let [met, missed] = self.met;
        let minutes = took.as_secs_f64() / 60.0;
        let sum =
            format!("| bars | {met} met, {missed} missed |\n| took | {minutes:.0} minutes |\n");
        print!("{sum}");
        if let Some(page) = &settings.page
            && settings.only.is_empty()
        {
            let command = "\nThe command is `make bench`; `UPDATE=1` writes this page.\n\n";
            let text = [HEAD, &self.head, &sum, command, self.body.trim_end(), "\n"].concat();
            fs::write(page, text).with_context(|| page.display().to_string())?;
        }
        Ok(self.failed)
    }
}
