//! What several parts of a proxy are given, and the parts that are made of it.

use std::sync::Arc;

use crate::config::Config;
use crate::console::admin::Api;
use crate::console::admin::files::Files;
use crate::console::admin::looks::Looks;
use crate::console::admin::room::Room;
use crate::console::admin::rooms::Rooms;
use crate::console::redrives::Redrives;
use crate::drain::Drain;
use crate::hook::Hook;
use crate::known::{Handlings, Known};
use crate::management::{Adoption, Alterations, Management};
use crate::net::background::Background;
use crate::net::clock::SystemClock;
use crate::net::dial::Dialer;
use crate::net::links::Opener;
use crate::net::permits::Permits;
use crate::net::vhosts::Hub;
use crate::net::walks::{Walker, Walks};
use crate::readiness::Readiness;
use crate::session;
use crate::telemetry::Metrics;
use crate::tls::Certificates;

use super::{Live, parts};

pub(super) struct Shared<'a> {
    config: &'a Config,
    drain: &'a Drain,
    pub(super) certificates: Certificates,
    pub(super) metrics: Metrics,
    pub(super) clock: SystemClock,
    pub(super) settings: Arc<session::Settings>,
    pub(super) readiness: Readiness,
    pub(super) dialer: Dialer,
    pub(super) management: Option<Management>,
    pub(super) hook: Option<Hook>,
    known: Known,
}

// === impl Shared ===

impl<'a> Shared<'a> {
    pub(super) fn new(
        config: &'a Config,
        drain: &'a Drain,
        certificates: Certificates,
        metrics: Metrics,
    ) -> Shared<'a> {
        let clock = SystemClock::start();
        let settings = Arc::new(parts::session(config));
        let dialer = parts::dialer(config, &certificates, &metrics);
        let readiness = Readiness::new(config.vhosts.iter().cloned());
        readiness.behind(dialer.nodes.clone(), metrics.clone());
        readiness.logs_in_as(parts::own_user(config), config.ready_when_refused);
        let management = parts::management(config, certificates.upstream()).map(|api| {
            let (policies, names) = (settings.policies.clone(), settings.names.clone());
            Management::new(api, policies, names, metrics.clone())
                .with_delays(settings.delays.clone())
        });
        let hook = parts::hook(config, certificates.hook())
            .map(|server| Hook::new(server, settings.limits.clone(), metrics.clone()));
        let known = Known::new(Handlings {
            catalogue: settings.catalogue.clone(),
            policies: settings.policies.clone(),
            mode: settings.mode,
            names: settings.names.clone(),
            user: settings.user.clone(),
            metrics: metrics.clone(),
            clock,
        });
        Shared {
            config,
            drain,
            certificates,
            metrics,
            clock,
            settings,
            readiness,
            dialer,
            management,
            hook,
            known,
        }
    }

    pub(super) fn hub(&self) -> Hub {
        let (config, settings) = (self.config, &self.settings);
        let opener = Opener {
            dialer: self.dialer.clone(),
            publisher: parts::publisher(config, settings),
            intake: parts::intake(config, settings),
            recorder: parts::recorder(config, settings),
            watchdog: self.management.as_ref().map(|management| {
                let (names, catalogue) = (config.names.clone(), settings.catalogue.clone());
                management.watchdog(names, self.known.clone(), catalogue, self.clock)
            }),
            known: self.known.clone(),
            hook: self.hook.clone(),
            metrics: self.metrics.clone(),
            readiness: self.readiness.clone(),
            drain: self.drain.clone(),
            clock: self.clock,
        };
        Hub::new(Box::new(move |hub, vhost, inboxes| {
            opener.open(hub, vhost, inboxes)
        }))
    }

    pub(super) fn adoption(&self, hub: &Hub) -> Option<Adoption> {
        let management = self.management.as_ref()?;
        Some(Adoption {
            api: management.api.clone(),
            hub: hub.clone(),
            names: self.settings.names.clone(),
            policies: management.policies.clone(),
            catalogue: self.settings.catalogue.clone(),
            clock: self.clock,
        })
    }

    pub(super) fn alterations(&self, walks: &Walks) -> Option<Alterations> {
        Some(Alterations {
            adoption: self.adoption(&walks.hub)?,
            walks: walks.clone(),
            login: parts::login(self.config),
            sessions: self.settings.clone(),
            attending: Arc::default(),
        })
    }

    pub(super) fn walks(&self, hub: &Hub, thread: Background) -> Walks {
        Walks {
            walker: Walker {
                dialer: self.dialer.clone(),
                clock: self.clock,
            },
            hub: hub.clone(),
            thread,
        }
    }

    /// What the API works with, whether it is served or not.
    pub(super) fn api(&self, walks: Walks) -> Api {
        let (config, settings, metrics) = (self.config, &self.settings, &self.metrics);
        let limits = &settings.limits;
        let adoption = self.adoption(&walks.hub);
        let alterations = self.alterations(&walks);
        let redrives = Redrives {
            walks: walks.clone(),
            drain: self.drain.clone(),
            own_user: settings.user.clone(),
            names: config.names.clone(),
            limits: limits.clone(),
            metrics: metrics.clone(),
            book: Arc::default(),
        };
        let looks = Looks::new(
            walks,
            limits.clone(),
            Permits::new(config.reloadable.max_browses),
            config.reloadable.error_headers.clone(),
            metrics.clone(),
        );
        let files = Files {
            looks: looks.clone(),
            own_user: settings.user.clone(),
            names: settings.names.clone(),
            rules: settings.rules,
            limits: limits.clone(),
            room: Room::new(limits.clone(), metrics.clone()),
            metrics: metrics.clone(),
            unread: Default::default(),
        };
        Api {
            looks,
            redrives,
            files,
            rooms: Rooms::new(config.reloadable.max_admin_connections),
            known: self.known.clone(),
            readiness: self.readiness.clone(),
            vhosts: config.vhosts.iter().cloned().collect(),
            edits: config.admin_edit,
            adoption,
            alterations,
        }
    }

    /// What a reload changes.
    pub(super) fn live(&self, api: &Api, hub: &Hub, permits: Permits) -> Live {
        Live {
            policies: self.settings.policies.clone(),
            limits: self.settings.limits.clone(),
            retained: self.settings.retained.clone(),
            permits,
            admin_rooms: api.rooms.clone(),
            looks: api.looks.clone(),
            drain: self.drain.clone(),
            hub: hub.clone(),
            certificates: self.certificates.clone(),
        }
    }
}
