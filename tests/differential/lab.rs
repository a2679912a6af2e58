//! The brokers that the environment names, their vhosts, and the proxies in front of them.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::environment::by_version;
use super::management::Management;
use super::methods::Arg;
use super::names::Names;
use super::proxy::Proxy;
use super::run::Record;
use super::script::{Operation, Script, Step};
use super::value::{Fallible, Value};

/// Scenarios share these: what they make has names of its own, and a vhost is not free.
const SHARED_VHOSTS: usize = 3;

/// Of our vhosts: then the process, and a number.
const PREFIX: &str = "differential-";

/// What to do when there is none.
pub(crate) const HOW: &str = "\
these tests need real brokers with the management plugin: run `make differential`, or give your own as
  DLX_TEST_BROKERS=\"3.10.8=amqp://guest:guest@127.0.0.1:5672,4.3.6=amqp://...\"
  DLX_TEST_MANAGEMENT=\"3.10.8=http://guest:guest@127.0.0.1:15672,4.3.6=http://...\"";

/// One RabbitMQ node.
pub(crate) struct Broker {
    pub version: String,
    pub address: SocketAddr,
    pub management: Management,
    /// As the proxy's `upstream`.
    url: String,
    /// Those that are shared, by the settings of their proxy.
    places: Mutex<HashMap<String, Vec<Place>>>,
    next: AtomicUsize,
    /// By scenario and type of queue: what its direct run was, and in which of the shared vhosts.
    direct: Mutex<HashMap<String, (String, Record)>>,
}

/// A vhost with a proxy in front of it.
#[derive(Clone)]
pub(crate) struct Place {
    pub vhost: String,
    /// Nothing: the vhost belongs to one scenario, and so will its proxy.
    shared: Option<Arc<Proxy>>,
}

// === impl Broker ===

impl Broker {
    /// All that the environment names, oldest first.
    pub(crate) fn all() -> Fallible<Vec<Arc<Broker>>> {
        let managements = by_version("DLX_TEST_MANAGEMENT", ',');
        let broker = |(version, url): (String, String)| {
            let (_, management) = managements.iter().find(|(of, _)| *of == version)?;
            let authority = url
                .strip_prefix("amqp://")?
                .trim_end_matches('/')
                .rsplit('@')
                .next()?;
            Some(Arc::new(Broker {
                address: authority.to_socket_addrs().ok()?.next()?,
                management: Management::new(management)?,
                version,
                url,
                places: Mutex::default(),
                next: AtomicUsize::new(0),
                direct: Mutex::default(),
            }))
        };
        let brokers: Option<Vec<_>> = by_version("DLX_TEST_BROKERS", ',')
            .into_iter()
            .map(broker)
            .collect();
        brokers
            .filter(|brokers| !brokers.is_empty())
            .ok_or_else(|| HOW.to_owned())
    }

    pub(crate) fn is_4x(&self) -> bool {
        !self.version.starts_with("3.")
    }

    /// It counts failed deliveries in all queues (S3.6). So does the model.
    pub(crate) fn counts_failures(&self) -> bool {
        let mut numbers = self
            .version
            .split('.')
            .map(|number| number.parse::<u32>().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(4), Some(3))
    }

    /// Where a scenario may run: with others that want the same settings, unless it disturbs them.
    pub(crate) fn place(&self, script: &Script) -> Fallible<Place> {
        let disturbs = |step: &Step| match step {
            Step::Proxy(_) => true,
            Step::Operator(operation) => operation.verb == "vhost-limit",
            _ => false,
        };
        if script.steps.iter().any(disturbs) || !script.policies.is_empty() {
            return Ok(Place {
                vhost: self.make_vhost()?,
                shared: None,
            });
        }
        let key = format!("{:?}", script.proxy);
        // Held while they are made, so that they are made once.
        let mut places = self
            .places
            .lock()
            .map_err(|_| "another scenario failed to make it")?;
        if !places.contains_key(&key) {
            let count = if script.proxy.is_empty() {
                SHARED_VHOSTS
            } else {
                1
            };
            let vhosts = (0..count)
                .map(|_| self.make_vhost())
                .collect::<Fallible<Vec<_>>>()?;
            let proxy = Arc::new(self.start_proxy(&vhosts.join(","), &script.proxy, "")?);
            let place = |vhost| Place {
                vhost,
                shared: Some(proxy.clone()),
            };
            places.insert(key.clone(), vhosts.into_iter().map(place).collect());
        }
        let all = &places[&key];
        Ok(all[self.next.fetch_add(1, Ordering::Relaxed) % all.len()].clone())
    }

    /// The proxy for a run in that place.
    pub(crate) fn proxy(
        &self,
        place: &Place,
        script: &Script,
        names: &Names,
    ) -> Fallible<Arc<Proxy>> {
        if let Some(shared) = &place.shared {
            return Ok(shared.clone());
        }
        let policies: Fallible<String> = script
            .policies
            .iter()
            .map(|policy| toml_of(policy, &place.vhost, names))
            .collect();
        Ok(Arc::new(self.start_proxy(
            &place.vhost,
            &script.proxy,
            &policies?,
        )?))
    }

    /// The model will be held to the same direct run as the proxy.
    pub(crate) fn keep(&self, script: &Script, queue_type: &str, place: &Place, direct: Record) {
        if self.counts_failures() && place.shared.is_some() && script.proxy.is_empty() {
            let key = format!("{}::{queue_type}", script.name);
            let mut kept = self.direct.lock().expect("no panic");
            kept.insert(key, (place.vhost.clone(), direct));
        }
    }

    /// What was kept, once.
    pub(crate) fn take(&self, script: &Script, queue_type: &str) -> Option<(String, Record)> {
        let key = format!("{}::{queue_type}", script.name);
        self.direct.lock().expect("no panic").remove(&key)
    }

    /// The scenario is done with it.
    pub(crate) fn leave(&self, place: &Place, proxy: Option<&Proxy>) -> Fallible<()> {
        if place.shared.is_some() {
            return Ok(());
        }
        proxy.map_or(Ok(()), Proxy::stop)?;
        self.management.delete_vhost(&place.vhost)
    }

    fn start_proxy(
        &self,
        vhosts: &str,
        settings: &[(String, String)],
        policies: &str,
    ) -> Fallible<Proxy> {
        // Each run has exchanges of its own, so that there are thousands in the end.
        let many = ("max-intake-exchanges".to_owned(), "100000".to_owned());
        let own = settings.iter().any(|(name, _)| *name == many.0);
        let mut settings = settings.to_vec();
        settings.extend((!own).then_some(many));
        for (_, value) in &mut settings {
            *value = value.replace("$management", &self.management.url());
        }
        Proxy::start(&self.url, vhosts, &settings, policies)
    }

    fn make_vhost(&self) -> Fallible<String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let vhost = format!(
            "{PREFIX}{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        self.management.make_vhost(&vhost).map(|()| vhost)
    }

    /// Stops the shared proxies, and deletes the vhosts of this process and of those that were killed.
    pub(crate) fn clean_up(&self) -> Fallible<()> {
        let places = std::mem::take(&mut *self.places.lock().map_err(|_| "a scenario panicked")?);
        let proxies = places
            .values()
            .filter_map(|places| places.first()?.shared.as_ref());
        proxies
            .map(|proxy| proxy.stop())
            .collect::<Fallible<Vec<_>>>()?;
        for vhost in self.management.vhosts()? {
            let owner = vhost
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            let over = |owner: u32| {
                owner == std::process::id() || !Path::new(&format!("/proc/{owner}")).exists()
            };
            if owner.is_some_and(over) {
                self.management.delete_vhost(&vhost)?;
            }
        }
        Ok(())
    }
}

/// A policy of a script as the proxy's configuration has it.
fn toml_of(policy: &Operation, vhost: &str, names: &Names) -> Fallible<String> {
    let mut out = format!("[[policy]]\nname = {:?}\n", names.inserted(&policy.name));
    if !policy.options.iter().any(|(name, _)| name == "vhost") {
        out += &format!("vhost = {vhost:?}\n");
    }
    let mut definition = String::from("[policy.definition]\n");
    for (name, value) in &policy.options {
        match value {
            Arg::Table(table) => {
                for (name, value) in &table.fields {
                    let Value::Text(text) = value else {
                        return Err(format!("not a string: {value}"));
                    };
                    let (name, text) =
                        (String::from_utf8_lossy(name), String::from_utf8_lossy(text));
                    definition += &format!("{name} = {:?}\n", names.inserted(&text));
                }
            }
            value if name == "priority" => out += &format!("priority = {value}\n"),
            value => {
                out += &format!(
                    "{name} = {:?}\n",
                    names.inserted(&String::from_utf8_lossy(value.text()))
                )
            }
        }
    }
    Ok(out + &definition)
}
