//! dlx-proxy: arguments → settings → logging → app → wait → drain. Exit codes live here only.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches};
use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::app::{self, App};
use dlx_proxy::config::{Config, DEFAULT_TOML, Mistakes, PASSWORD, USERNAME};
use dlx_proxy::console::admin::client::{Client, readiness};
use dlx_proxy::console::cli::{self, Cli, Command};
use dlx_proxy::console::dead_letters::{self, Failed, Outcome, Query, Said};
use dlx_proxy::console::demo;
use dlx_proxy::console::doctor;
use dlx_proxy::console::retries::{self, Wanted};
use dlx_proxy::descriptors;
use dlx_proxy::drain::{Drain, Ended};
use dlx_proxy::plain;
use dlx_proxy::reload::Reload;
use dlx_proxy::service;
use dlx_proxy::telemetry::logging;
use dlx_proxy::tls;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

/// `EX_USAGE` of sysexits.h: the settings must be changed before another attempt.
const MISTAKES: u8 = 64;

const IN_PART: u8 = 3;
const FAILED: u8 = 65;
/// As shells report a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let typed = Cli::command().try_get_matches();
    let typed = typed.and_then(|typed| Ok((Cli::from_arg_matches(&typed)?, Query::of(&typed))));
    let (command, query) = match typed {
        Ok((typed, query)) => (typed.command, query),
        Err(said) => {
            cli::print(&said);
            return match said.use_stderr() {
                true => MISTAKES.into(),
                false => ExitCode::SUCCESS,
            };
        }
    };
    match carry_out(command, query) {
        Ok(code) => code,
        Err(error) if error.is::<Mistakes>() => {
            eprintln!("{}", plain::lines(&error.to_string()));
            MISTAKES.into()
        }
        Err(error) if is_not_approved(&error) => {
            eprintln!("dlx-proxy: {error}");
            MISTAKES.into()
        }
        Err(error) => {
            if tracing::dispatcher::has_been_set() {
                error!("{error:#}");
            } else {
                eprintln!("dlx-proxy: {}", plain::line(&format!("{error:#}")));
            }
            ExitCode::FAILURE
        }
    }
}

fn is_not_approved(error: &anyhow::Error) -> bool {
    let failed = error.downcast_ref();
    matches!(failed, Some(Failed::NotApproved | Failed::PlanNotApproved))
}

fn carry_out(command: Command, query: Query) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(settings) => run(settings)?,
        Command::Config(cli::Config::Check(settings)) => {
            print_config(&Config::load(&settings.sources())?);
        }
        Command::Config(cli::Config::Default) => print!("{DEFAULT_TOML}"),
        Command::Completions { shell } => cli::papers::completions(shell, &mut std::io::stdout())?,
        Command::Man { folder: None } => cli::papers::page(&mut std::io::stdout())?,
        Command::Man {
            folder: Some(folder),
        } => cli::papers::pages(&folder)?,
        Command::Doctor(asked) => return examine(&asked),
        Command::Demo(cli::Demo { url, keep }) => runtime()?.block_on(demo::run(&url, keep))?,
        Command::Healthcheck(settings) => healthcheck(settings)?,
        Command::Status(place) => {
            return ask(&place, async |client| {
                dead_letters::status(client, &place).await
            });
        }
        Command::Watch(asked) => {
            return ask(&asked.place, async |client| {
                dead_letters::watch(client, &asked).await
            });
        }
        Command::Queues(asked) => {
            return ask(&asked.place, async |client| {
                dead_letters::handled(client, &asked, query).await
            });
        }
        Command::DeadLetters(asked) => {
            return ask(&asked.place, async |client| {
                dead_letters::dead_letters(client, &asked, query).await
            });
        }
        Command::Retries(cli::Retries::List(arguments)) => list(arguments)?,
        Command::Retries(cli::Retries::Release(of)) => release(&of.place, of.queue, false)?,
        Command::Retries(cli::Retries::Purge(of)) => release(&of.place, Some(of.queue), true)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_config(config: &Config) {
    print!("{}", config.to_toml());
    for (about, why) in config.notes() {
        eprintln!("{about}: {why}");
    }
}

fn run(settings: cli::Settings) -> anyhow::Result<()> {
    let sources = settings.sources();
    let config = Config::load(&sources)?;
    let level = logging::start(config.log_format, config.reloadable.log_level)?;
    descriptors::raise();
    let handed = service::socket();
    app::first_line(
        &config,
        &sources,
        handed.as_ref().ok().and_then(Option::as_ref),
    );
    let handed = handed.context("cannot take the socket of the service manager")?;
    descriptors::warn_of_few(
        config.reloadable.max_connections,
        config.reloadable.max_admin_connections,
    );
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let drain = Drain::new(config.reloadable.drain_timeout);
        drain.on_signals().context("cannot listen to signals")?;
        let hangups = signal(SignalKind::hangup()).context("cannot listen to signals")?;
        let app = App::bind(&config, handed, &drain).await?;
        let follow = service::follow(app.listens(), drain.clone(), app.workers());
        tokio::spawn(follow);
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

fn examine(asked: &cli::Doctor) -> anyhow::Result<ExitCode> {
    let said = |flag: &Option<String>, variable| flag.clone().or(std::env::var(variable).ok());
    let client = match said(&asked.username, USERNAME) {
        Some(user) => Some((
            ShortStr::new(user).context("--username is over 255 bytes")?,
            said(&asked.password, PASSWORD).unwrap_or_else(|| "guest".to_owned()),
        )),
        None => None,
    };
    // As the proxy does, which finds the same limit then.
    descriptors::raise();
    let config = Config::load(&asked.broker.sources())?;
    let patient = app::patient(&config, client, asked.client_user.clone())?;
    let report = runtime()?.block_on(doctor::examine(&patient));
    print!(
        "{}",
        match asked.output {
            cli::Output::Table | cli::Output::Tsv => report.text(),
            cli::Output::Json => report.json(),
        }
    );
    Ok(match report.count(doctor::Kind::Problem) {
        0 => ExitCode::SUCCESS,
        _ => MISTAKES.into(),
    })
}

fn healthcheck(settings: cli::AdminPort) -> anyhow::Result<()> {
    let place = settings.place(tls::Client::of_own_admin)?;
    let reasons = runtime()?.block_on(readiness(&place))?;
    anyhow::ensure!(
        reasons.is_empty(),
        "not ready: {}",
        reasons.trim_end().replace('\n', "; ")
    );
    Ok(())
}

fn ask(
    place: &cli::Place,
    work: impl AsyncFnOnce(&Client) -> Result<(Said, Outcome), Failed>,
) -> anyhow::Result<ExitCode> {
    let client = place.proxy.client()?;
    let (said, outcome) = runtime()?.block_on(work(&client))?;
    print_said(said)?;
    Ok(exit_code(outcome))
}

fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::All => ExitCode::SUCCESS,
        Outcome::InPart => IN_PART.into(),
        Outcome::Failed => FAILED.into(),
        Outcome::Left => INTERRUPTED.into(),
        Outcome::Unhealthy => ExitCode::FAILURE,
    }
}

fn print_said(said: Said) -> anyhow::Result<()> {
    for note in said.notes {
        eprintln!("dlx-proxy: {note}");
    }
    // Whoever reads it may have seen enough.
    match std::io::stdout().write_all(said.answer.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write"),
        _ => Ok(()),
    }
}

fn list(arguments: cli::List) -> anyhow::Result<()> {
    let place = app::retries(&Config::load(&arguments.place.broker.sources())?)?;
    let listing = retries::list(&place, &arguments.place.delays, arguments.messages);
    let listing = serde_json::to_value(runtime()?.block_on(listing)?)?;
    let list = Some(&dead_letters::WAITING);
    print_said(Said::of(&listing, &arguments.place.printing, list)?)
}

fn release(of: &cli::Waiting, queue: Option<String>, removes: bool) -> anyhow::Result<()> {
    let place = app::retries(&Config::load(&of.broker.sources())?)?;
    let wanted = Wanted {
        removes,
        queue: match queue {
            Some(name) => {
                Some(ShortStr::new(name).context("the name of the queue is over 255 bytes")?)
            }
            None => None,
        },
        delays: of.delays.clone(),
    };
    let releases = retries::release(&place, &wanted);
    let releases = serde_json::to_value(runtime()?.block_on(releases)?)?;
    let list = Some(&dead_letters::RELEASED);
    print_said(Said::of(&releases, &of.printing, list)?)
}

fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start threads")
}
