//! The two links of a vhost as tasks: settings become machines, each with its driver.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::debug;

use crate::admin::Readiness;
use crate::amqp::ids::Vhost;
use crate::drain::{Drain, Phase};
use crate::intake::{self, Intake};
use crate::link::Login;
use crate::machine::{Event, Input, Machine};
use crate::publisher::{self, Publisher};
use crate::telemetry::Metrics;

use super::drive::{Clock, Connector, Drive};
use super::listener::connect;
use super::vhosts::{Hub, LinkInboxes, LinkOutlet};

/// Surveys a vhost: reads its exchanges and bindings, and puts them as one [`Input::Surveyed`] into that inbox. Does not block.
pub type Surveyor = Arc<dyn Fn(&Vhost, mpsc::Sender<Input>) + Send + Sync>;

/// Opens links.
pub struct Opener {
    /// Host and port of the broker.
    pub broker: (String, u16),
    /// How long the broker may take to accept.
    pub connect_timeout: Duration,
    /// Of every publisher; vhost and owner are filled in.
    pub publisher: publisher::Settings,
    /// Of every intake; the vhost, and whether it is surveyed, are filled in.
    pub intake: intake::Settings,
    /// If there is a management API to ask.
    pub surveyor: Option<Surveyor>,
    /// The counters.
    pub metrics: Metrics,
    /// Told when links come and go.
    pub readiness: Readiness,
    /// The end.
    pub drain: Drain,
    /// The clock of all machines.
    pub clock: Clock,
}

// === impl Opener ===

impl Opener {
    /// Starts the two tasks of a vhost.
    pub fn open(&self, hub: &Hub, vhost: &Vhost, inboxes: LinkInboxes) {
        debug!(%vhost, "opening links");
        let now = self.clock.now();
        let login = |login: &Login| Login {
            vhost: vhost.clone(),
            ..login.clone()
        };

        let settings = publisher::Settings {
            login: login(&self.publisher.login),
            intake: Some(inboxes.intake_owner),
            ..self.publisher.clone()
        };
        let outlet = LinkOutlet::publisher(
            hub,
            self.metrics.clone(),
            vhost.clone(),
            self.observer(vhost),
        );
        self.drive(
            Phase::Publisher,
            Publisher::new(settings, now),
            outlet,
            inboxes.publisher,
        );

        let settings = intake::Settings {
            login: login(&self.intake.login),
            surveyed: self.surveyor.is_some(),
            ..self.intake.clone()
        };
        let (surveyed, to_intake) = (vhost.clone(), inboxes.to_intake);
        let survey = self.surveyor.clone().map(|survey| {
            Box::new(move || survey(&surveyed, to_intake.clone())) as Box<dyn Fn() + Send>
        });
        let outlet = LinkOutlet::intake(
            hub,
            self.metrics.clone(),
            vhost.clone(),
            self.observer(vhost),
            (inboxes.intake_owner, inboxes.to_publisher),
            survey,
        );
        let intake = Intake::new(settings, now);
        self.drive(Phase::Intake, intake, outlet, inboxes.intake);
    }

    fn drive<M: Machine + Send + 'static>(
        &self,
        phase: Phase,
        machine: M,
        outlet: LinkOutlet,
        inbox: mpsc::Receiver<Input>,
    ) {
        let drive = Drive::link(machine, outlet, inbox, self.clock, Some(self.connector()));
        self.drain
            .spawn(phase, drive.run(self.drain.stopped(phase)));
    }

    fn connector(&self) -> Connector {
        let (broker, within) = (Arc::new(self.broker.clone()), self.connect_timeout);
        Box::new(move || {
            let broker = broker.clone();
            Box::pin(async move {
                let connected = connect(&broker, within).await;
                if let Err(error) = &connected {
                    let (host, port) = &*broker;
                    debug!(broker = format!("{host}:{port}"), %error, "cannot connect");
                }
                connected
            })
        })
    }

    fn observer(&self, vhost: &Vhost) -> Box<dyn Fn(&Event) + Send> {
        let (readiness, vhost) = (self.readiness.clone(), vhost.clone());
        Box::new(move |event| readiness.observe(&vhost, event))
    }
}
