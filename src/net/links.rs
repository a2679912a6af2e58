//! The links of a vhost as tasks: settings become machines, each with its driver.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tracing::debug;

use crate::amqp::ids::Vhost;
use crate::drain::{Drain, Phase};
use crate::hook::Hook;
use crate::intake::{self, Intake};
use crate::known::Known;
use crate::link::Login;
use crate::machine::{Event, Machine};
use crate::publisher::{self, Publisher};
use crate::pulse::{self, Pulse};
use crate::readiness::Readiness;
use crate::recorder::{self, Recorder};
use crate::registry::existing_delays::ExistingDelays;
use crate::telemetry::{Metrics, Reporter};

use super::clock::{Clock, SystemClock};
use super::dial::{Dialer, Line};
use super::drive::{Drive, Outlet};
use super::nodes::Address;
use super::outlet::{CAREFUL, CarefulOutlet, LinkOutlet, Observer, OpenCareful, PublisherOutlet};
use super::question::Question;
use super::vhosts::{Hub, LinkInboxes};

/// Watches the queues of a vhost while it runs: finds delay queues, and answers questions about
/// queues.
pub type Watchdog = Arc<
    dyn Fn(&Vhost, ExistingDelays, mpsc::Receiver<Question>, Box<dyn Observer>) -> Watching
        + Send
        + Sync,
>;
pub type Watching = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone)]
pub struct Opener {
    pub dialer: Dialer,
    /// Without vhost, owner and delay queues.
    pub publisher: publisher::Settings,
    pub intake: intake::Settings,
    pub recorder: recorder::Settings,
    pub watchdog: Option<Watchdog>,
    pub known: Known,
    pub hook: Option<Hook>,
    pub metrics: Metrics,
    pub readiness: Readiness,
    pub drain: Drain,
    pub clock: SystemClock,
}

/// The last address of a link, which its machine does not know.
type LedTo = Arc<Mutex<Option<Address>>>;

/// Logs and counts facts of a link, remembers dead letters, and updates readiness.
struct LinkTelemetry {
    vhost: Vhost,
    led_to: LedTo,
    reporter: Reporter,
    readiness: Readiness,
    clock: SystemClock,
    known: Known,
    hook: Option<Hook>,
}

// === impl Opener ===

impl Opener {
    pub fn open(&self, hub: &Hub, vhost: &Vhost, inboxes: LinkInboxes) {
        debug!(%vhost, "opening links");
        let now = self.clock.now();
        let login = |login: &Login| Login {
            vhost: vhost.clone(),
            ..login.clone()
        };

        let outlets = [(); 3].map(|()| {
            let led_to = LedTo::default();
            let observer = self.telemetry(vhost, &led_to);
            (LinkOutlet::new(hub, observer, &inboxes), led_to)
        });

        let existing_delays = ExistingDelays::default();
        self.watch(vhost, &existing_delays, inboxes.questions);
        let settings = publisher::Settings {
            login: login(&self.publisher.login),
            intake: Some(inboxes.intake_owner),
            existing_delays: existing_delays.clone(),
            ..self.publisher.clone()
        };
        let led_to = LedTo::default();
        let (answer, answers) = mpsc::channel(CAREFUL);
        let careful = self.careful(vhost, &settings, answer);
        let outlet = PublisherOutlet::new(hub, self.telemetry(vhost, &led_to), careful);
        let publisher = Publisher::new(settings, now);
        let drive = self.link(publisher, outlet, inboxes.publisher, led_to);
        let drained = self.drain.stopped(Phase::Publisher);
        let mut drive = drive.with_answers(answers);
        let publishing = async move { drive.run(drained).await };
        self.drain.spawn(Phase::Publisher, publishing);
        let [for_recorder, for_pulse, for_intake] = outlets;
        let settings = recorder::Settings {
            login: login(&self.recorder.login),
            ..self.recorder.clone()
        };
        let recorder = Recorder::new(settings, now);
        let recorded = recorder.is_wanted();
        let (outlet, led_to) = for_recorder;
        self.drive(Phase::Publisher, recorder, outlet, inboxes.recorder, led_to);

        let settings = pulse::Settings {
            login: login(&self.intake.login),
            names: self.intake.names.clone(),
            delays: existing_delays,
        };
        let (_, nothing) = mpsc::channel(1);
        let (outlet, led_to) = for_pulse;
        self.drive(Phase::Intake, Pulse::new(settings), outlet, nothing, led_to);

        let settings = intake::Settings {
            login: login(&self.intake.login),
            recorded,
            ..self.intake.clone()
        };
        let intake = Intake::new(settings, now);
        let (outlet, led_to) = for_intake;
        self.drive(Phase::Intake, intake, outlet, inboxes.intake, led_to);
    }

    fn watch(&self, vhost: &Vhost, delays: &ExistingDelays, questions: mpsc::Receiver<Question>) {
        let Some(watchdog) = &self.watchdog else {
            return;
        };
        let observer = self.telemetry(vhost, &LedTo::default());
        let watching = watchdog(vhost, delays.clone(), questions, observer);
        let stopped = self.drain.stopped(Phase::Intake);
        self.drain.spawn(Phase::Intake, async {
            tokio::select! { () = watching => {}, () = stopped => {} }
        });
    }

    fn careful(
        &self,
        vhost: &Vhost,
        settings: &publisher::Settings,
        answer: mpsc::Sender<publisher::Input>,
    ) -> OpenCareful {
        let (opener, vhost) = (self.clone(), vhost.clone());
        let settings = publisher::Settings {
            careful: true,
            ..settings.clone()
        };
        Box::new(move |inbox, ends| {
            let led_to = LedTo::default();
            let outlet = CarefulOutlet::new(opener.telemetry(&vhost, &led_to), answer.clone());
            let careful = Publisher::new(settings.clone(), opener.clock.now());
            let mut drive = opener.link(careful, outlet, inbox, led_to);
            let ended = ends.cancelled_owned();
            opener
                .drain
                .spawn(Phase::Publisher, async move { drive.run(ended).await });
        })
    }

    fn drive<M: Machine<Input: Send, Output: Send> + Send + 'static>(
        &self,
        phase: Phase,
        machine: M,
        outlet: impl Outlet<M> + Send + 'static,
        inbox: mpsc::Receiver<M::Input>,
        led_to: LedTo,
    ) {
        let mut drive = self.link(machine, outlet, inbox, led_to);
        let drained = self.drain.stopped(phase);
        self.drain
            .spawn(phase, async move { drive.run(drained).await });
    }

    fn link<M: Machine, O: Outlet<M>>(
        &self,
        machine: M,
        outlet: O,
        inbox: mpsc::Receiver<M::Input>,
        led_to: LedTo,
    ) -> Drive<M, O, Line, SystemClock> {
        let connector = self.dialer.connector(move |address| {
            *led_to.lock().unwrap_or_else(PoisonError::into_inner) = Some(address.clone());
        });
        Drive::link(machine, outlet, inbox, self.clock, connector)
    }

    fn telemetry(&self, vhost: &Vhost, led_to: &LedTo) -> Box<dyn Observer> {
        Box::new(LinkTelemetry {
            vhost: vhost.clone(),
            led_to: led_to.clone(),
            reporter: Reporter::link(self.metrics.clone(), vhost.clone())
                .awaited(self.readiness.awaits(vhost)),
            readiness: self.readiness.clone(),
            clock: self.clock,
            known: self.known.clone(),
            hook: self.hook.clone(),
        })
    }
}

// === impl LinkTelemetry ===

impl Observer for LinkTelemetry {
    fn event(&mut self, event: &Event) {
        if matches!(event, Event::LinkUp { .. }) {
            let led_to = self.led_to.lock().unwrap_or_else(PoisonError::into_inner);
            self.reporter.linked(led_to.clone());
        }
        self.reporter.report(event);
        self.readiness.observe(&self.vhost, event);
        if let Event::ParkedTried { causes, .. } = event {
            self.known.book().parked(&self.vhost, causes);
        }
        if let Event::DeadLetter(dead) = event {
            let now = self.clock.now().wall;
            self.known.hear(&self.vhost, now, dead);
            if let Some(hook) = &self.hook {
                hook.add(&self.vhost, now, dead);
            }
        }
    }
}
