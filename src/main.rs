//! dlx-proxy: arguments → settings → logging → app → wait → drain. Exit codes live here only.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use dlx_proxy::admin;
use dlx_proxy::admin::client::Client;
use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::app::{self, App};
use dlx_proxy::cli::{self, Cli, Command, DeadLetters, Look, Move, Redrives};
use dlx_proxy::config::{Config, DEFAULT_TOML, Mistakes, OF_REJECTS_ONLY, PASSWORD, USERNAME};
use dlx_proxy::dead_letters::{self, Failed, Outcome, Said};
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

/// What was asked for is done in part.
const IN_PART: u8 = 3;
/// `EX_DATAERR` of sysexits.h: what was asked for could not be done.
const FAILED: u8 = 65;
/// What a shell says of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(typed) => typed.command(),
        Err(said) => {
            drop(said.print()); // nobody is there to read it
            return match said.use_stderr() {
                true => MISTAKES.into(),
                false => ExitCode::SUCCESS,
            };
        }
    };
    match carry_out(command) {
        Ok(code) => code,
        Err(error) if error.is::<Mistakes>() => {
            eprintln!("{error}");
            MISTAKES.into()
        }
        Err(error) if matches!(error.downcast_ref(), Some(Failed::NotApproved)) => {
            eprintln!("dlx-proxy: {error}");
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

fn carry_out(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(settings) => run(settings)?,
        Command::CheckConfig(settings) => print_config(&Config::load(&settings.sources())?),
        Command::PrintDefaultConfig => print!("{DEFAULT_TOML}"),
        Command::Demo(arguments) => demonstrate(arguments)?,
        Command::Healthcheck(settings) => healthcheck(settings)?,
        Command::Redeclared(settings) => redeclared(settings)?,
        Command::DeadLetters(DeadLetters::Look(asked)) => look(&asked)?,
        Command::DeadLetters(DeadLetters::Redrive { queue, to, moving }) => {
            let to = Some(to);
            return move_them(&Move { queue, to, moving });
        }
        Command::DeadLetters(DeadLetters::Purge { queue, moving }) => {
            let to = None;
            return move_them(&Move { queue, to, moving });
        }
        Command::Redrives(asked) => redrives(&asked)?,
        Command::Retries(cli::Retries::List(arguments)) => list(arguments)?,
        Command::Retries(cli::Retries::Release(arguments)) => release(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
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

fn look(asked: &Look) -> anyhow::Result<()> {
    let client = client(&asked.queue().proxy)?;
    print_said(runtime()?.block_on(dead_letters::ask(&client, asked))?);
    Ok(())
}

fn move_them(wanted: &Move) -> anyhow::Result<ExitCode> {
    let client = client(&wanted.queue.proxy)?;
    let moved = runtime()?.block_on(dead_letters::move_them(&client, wanted));
    let (said, outcome) = moved?;
    print_said(said);
    Ok(match outcome {
        Outcome::All => ExitCode::SUCCESS,
        Outcome::InPart => IN_PART.into(),
        Outcome::Failed => FAILED.into(),
        Outcome::Left => INTERRUPTED.into(),
    })
}

fn redrives(asked: &Redrives) -> anyhow::Result<()> {
    let client = client(&asked.place().proxy)?;
    print_said(runtime()?.block_on(dead_letters::redrives(&client, asked))?);
    Ok(())
}

fn client(proxy: &cli::Proxy) -> anyhow::Result<Client> {
    let said = |flag: &Option<String>, variable| flag.clone().or(std::env::var(variable).ok());
    Ok(Client {
        admin: Config::load(&proxy.sources())?.admin,
        user: said(&proxy.username, USERNAME).unwrap_or_else(|| "guest".to_owned()),
        password: said(&proxy.password, PASSWORD).unwrap_or_else(|| "guest".to_owned()),
    })
}

fn print_said(said: Said) {
    print!("{}", said.answer);
    for note in said.notes {
        eprintln!("dlx-proxy: {note}");
    }
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
