//! `dlx-proxy doctor`: what may be typed, and its help.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::{Broker, Output};

pub(super) const AFTER_DOCTOR: &str = "\
It reads the settings of the proxy, and asks the broker as the proxy's user, by requests that change nothing. Exit code 0: nothing has to be \
changed; 64: there are problems, or mistakes in the settings.";

/// What to examine.
#[derive(Args, Debug)]
pub struct Doctor {
    /// The broker.
    #[command(flatten)]
    pub broker: Broker,
    /// A user of the broker as whom clients connect: examine what this user may do, too [env: DLX_PROXY_USERNAME]
    #[arg(short, long, value_name = "NAME")]
    pub username: Option<String>,
    /// The password of that user [env: DLX_PROXY_PASSWORD]
    #[arg(short, long, value_name = "TEXT")]
    pub password: Option<String>,
    /// A user of the broker as whom clients connect: print the command that adds what clients of the proxy need to what this user may do. It takes a
    /// management-url with an administrator
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub client_user: Option<String>,
    /// How to print it: table or json
    #[arg(
        short,
        long,
        value_name = "FORM",
        default_value = "table",
        hide_possible_values = true
    )]
    pub output: Output,
}
