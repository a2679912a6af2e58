//! dlx-proxy: arguments → settings → logging → app → wait → drain. Exit codes live here only.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use dlx_proxy::admin;
use dlx_proxy::admin::client::Client;
use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::app::{self, App};
use dlx_proxy::cli::{self, Cli, Command};
use dlx_proxy::config::{Config, DEFAULT_TOML, Mistakes, OF_REJECTS_ONLY, PASSWORD, USERNAME};
use dlx_proxy::dead_letters;
use dlx_proxy::demo;
use dlx_proxy::drain::{Drain, Ended};
use dlx_proxy::reload::Reload;
use dlx_proxy::retries::{self, Wanted};
use dlx_proxy::telemetry::logging;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

/// `EX_USAGE` of sysexits.h: the settings must be changed before another attempt makes sense.
const MISTAKES: u8 = 64;

fn main() -> ExitCode {
    let done = match Cli::parse().command() {
        Command::Run(settings) => run(settings),
        Command::CheckConfig(settings) => Config::load(&settings.sources())
            .map(|config| print_config(&config))
            .map_err(Into::into),
        Command::PrintDefaultConfig => {
            print!("{DEFAULT_TOML}");
            Ok(())
        }
        Command::Demo(arguments) => demonstrate(arguments),
        Command::Healthcheck(settings) => healthcheck(settings),
        Command::Redeclared(settings) => redeclared(settings),
        Command::DeadLetters(asked) => dead_letters(asked),
        Command::Retries(cli::Retries::List(arguments)) => list(arguments),
        Command::Retries(cli::Retries::Release(arguments)) => release(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Mistakes>() => {
            eprintln!("{error}");
            MISTAKES.into()
        }
        Err(error) => {
            if tracing::dispatcher::has_been_set() {
                error!("{error:#}");
            } else {
                eprintln!("dlx-proxy: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The settings, and what they do not tell by themselves.
fn print_config(config: &Config) {
    print!("{}", config.to_toml());
    for policy in config.policies_of_rejects_only() {
        eprintln!("policy {policy:?}: {OF_REJECTS_ONLY}");
    }
}

fn run(settings: cli::Settings) -> anyhow::Result<()> {
    let sources = settings.sources();
    let config = Config::load(&sources)?;
    let level = logging::start(config.log_format, config.reloadable.log_level)?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let drain = Drain::new(config.reloadable.drain_timeout);
        drain.on_signals().context("cannot listen to signals")?;
        let hangups = signal(SignalKind::hangup()).context("cannot listen to signals")?;
        let app = App::bind(&config, &drain).await?;
        let live = app.live();
        let reload = Reload {
            sources,
            config,
            live,
            level,
        };
        tokio::spawn(reload.at(hangups));
        serve(app, drain).await;
        Ok(())
    });
    runtime.shutdown_background(); // a resolver of names that does not answer must not hold the end
    done
}

async fn serve(app: App, drain: Drain) {
    match app.run(drain).await {
        Ended::Settled => info!("ended"),
        Ended::Cut(left) => warn!(
            left,
            "ended before all was settled; the broker keeps what is not"
        ),
    }
}

fn demonstrate(cli::Demo { url, json }: cli::Demo) -> anyhow::Result<()> {
    let dead_letters = runtime()?.block_on(demo::run(&url))?;
    print!(
        "{}",
        if json {
            dead_letters.json()
        } else {
            dead_letters.table()
        }
    );
    dead_letters.check().map_err(Into::into)
}

fn healthcheck(settings: cli::AdminPort) -> anyhow::Result<()> {
    let address = Config::load(&settings.sources())?.admin;
    let reasons = admin::ask(address).with_context(|| format!("no answer from {address}"))?;
    anyhow::ensure!(
        reasons.is_empty(),
        "not ready: {}",
        reasons.trim_end().replace('\n', "; ")
    );
    Ok(())
}

fn redeclared(settings: cli::AdminPort) -> anyhow::Result<()> {
    let address = Config::load(&settings.sources())?.admin;
    let list = admin::ask_redeclared(address);
    print!(
        "{}",
        list.with_context(|| format!("no answer from {address}"))?
    );
    Ok(())
}

fn dead_letters(asked: cli::DeadLetters) -> anyhow::Result<()> {
    let queue = asked.queue();
    let said = |flag: &Option<String>, variable| flag.clone().or(std::env::var(variable).ok());
    let client = Client {
        admin: Config::load(&queue.sources())?.admin,
        user: said(&queue.username, USERNAME).unwrap_or_else(|| "guest".to_owned()),
        password: said(&queue.password, PASSWORD).unwrap_or_else(|| "guest".to_owned()),
    };
    let said = runtime()?.block_on(dead_letters::ask(&client, &asked))?;
    print!("{}", said.answer);
    for note in said.notes {
        eprintln!("dlx-proxy: {note}");
    }
    Ok(())
}

fn list(arguments: cli::List) -> anyhow::Result<()> {
    let place = app::retries(&Config::load(&arguments.place.sources())?);
    let listing = retries::list(&place, &arguments.place.delays, arguments.messages);
    let listing = runtime()?.block_on(listing)?;
    let said = match arguments.place.json {
        true => listing.json(),
        false => listing.text(),
    };
    print!("{said}");
    Ok(())
}

fn release(arguments: cli::Release) -> anyhow::Result<()> {
    let place = app::retries(&Config::load(&arguments.place.sources())?);
    let wanted = Wanted {
        queue: match arguments.queue {
            Some(name) => Some(ShortStr::new(name).context("--queue is over 255 bytes")?),
            None => None,
        },
        delays: arguments.place.delays.clone(),
    };
    let releases = retries::release(&place, &wanted);
    let releases = runtime()?.block_on(releases)?;
    let said = match arguments.place.json {
        true => releases.json(),
        false => releases.text(),
    };
    print!("{said}");
    Ok(())
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start threads")
}
