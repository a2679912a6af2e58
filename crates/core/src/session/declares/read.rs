//! A declare of the client as it is read: its type, what it says of dead letters and of retries, and what is wanted with it.

use std::borrow::Cow;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::QueueDeclare;
use crate::machine::{Event, Fallback};
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::arguments::{Aim, DeclareArguments, Wanted};
use crate::registry::lenient::{Kept, Lenient};
use crate::registry::policy::{Mode, Policy};
use crate::registry::said_retries::{self, SaidRetries};
use crate::registry::{Declared, Form, generated, in_vain};
use crate::session::line::Line;

use super::Declares;

/// Queues of other types than classic are durable and not exclusive
/// (`rabbit_channel:augment_declare_args`).
const NOT_OF_THE_DEFAULT_TYPE: u8 = QueueDeclare::EXCLUSIVE | QueueDeclare::AUTO_DELETE;
/// Another intake exchange's name may be this much longer, because of the type in it.
const OTHER_TYPE: usize = 2;

/// A declare that may make a queue.
pub(super) struct Read<'a> {
    pub(super) payload: &'a [u8],
    pub(super) declare: QueueDeclare<'a>,
    /// For policies. If the broker generates the name: a possible one.
    pub(super) name: Cow<'a, [u8]>,
    pub(super) queue_type: QueueType,
    /// What was put in other words.
    pub(super) kept: Vec<Kept>,
}

// === impl Read ===

impl<'a> Read<'a> {
    pub(super) fn queue(&self) -> ShortStr {
        ShortStr::copy(self.declare.queue).unwrap_or_default()
    }

    pub(super) fn arguments(&self) -> DeclareArguments<'a> {
        DeclareArguments::read(self.declare.arguments)
    }

    /// For an unchanged declare: its queue is managed once its name is known.
    pub(super) fn wanted_by_name(&self) -> Wanted {
        match self.arguments().said() {
            Some(said) => Wanted::Keep(said),
            None => Wanted::Leave(Fallback::NotSupported),
        }
    }

    /// Facts about its queue if the declare goes on unchanged.
    pub(super) fn as_it_is(&self, said: DeclaredTarget, retries: SaidRetries) -> Declared {
        Declared {
            said,
            retries,
            queue_type: self.queue_type,
            taken_over: false,
            form: Form::of(self.declare.bits, self.declare.arguments),
            kept: self.kept.as_slice().into(),
        }
    }

    /// The method with these arguments.
    fn payload_with(&self, arguments: &[u8]) -> Vec<u8> {
        let before = self.payload.len() - self.declare.arguments.len() - 4;
        let before = self.payload.get(..before).unwrap_or_default();
        [before, &(arguments.len() as u32).to_be_bytes(), arguments].concat()
    }

    pub(super) fn may_have_the_default_type(&self) -> bool {
        may_have_the_default_type(&self.declare)
    }
}

fn may_have_the_default_type(declare: &QueueDeclare<'_>) -> bool {
    declare.has(QueueDeclare::DURABLE) && declare.bits & NOT_OF_THE_DEFAULT_TYPE == 0
}

impl Line<'_, '_> {
    /// `own`: the type of an existing queue, which a matching declare shares.
    pub(super) fn read<'a>(
        &self,
        declare: QueueDeclare<'a>,
        payload: &'a [u8],
        own: Option<QueueType>,
    ) -> Read<'a> {
        let said = DeclareArguments::read(declare.arguments).queue_type();
        let queue_type = match said == QueueType::Default && may_have_the_default_type(&declare) {
            true => self.registry.default_type().or(own).unwrap_or(said),
            false => said,
        };
        let name = match generated::is_made(declare.queue) {
            true => {
                let start = generated::start(declare.arguments, self.peer.version);
                generated::sample(&start).into()
            }
            false => declare.queue.into(),
        };
        Read {
            payload,
            declare,
            name,
            queue_type,
            kept: Vec::new(),
        }
    }

    /// The method in words that the broker does not refuse by default, and in what those differ from the client's.
    pub(super) fn modern(&self, read: &Read<'_>) -> Option<(Vec<u8>, Vec<Kept>)> {
        let form = Form {
            bits: read.declare.bits,
            arguments: read.declare.arguments.to_vec(),
        };
        let (form, kept) = self.lenient(read).modern(&form, self.peer.version)?;
        let mut payload = read.payload_with(&form.arguments);
        let bits = payload.len() - form.arguments.len() - 4 - 1;
        *payload.get_mut(bits)? = form.bits;
        self.fits_frame(payload.len()).then_some((payload, kept))
    }

    /// In what it may differ from its queue. Streams tell in other words what they have.
    pub(super) fn lenient(&self, read: &Read<'_>) -> Lenient {
        if read.declare.queue.is_empty() || read.queue_type == QueueType::Other {
            return Lenient::default();
        }
        let of_policy = |policy: Option<&Policy>| policy?.lenient.clone();
        let lenient = self.of_policy(&read.name, read.queue_type, of_policy);
        let lenient = lenient.unwrap_or_else(|| self.settings.lenient.clone());
        let lenient = match self.registry.altered(&read.name) {
            Some(names) => lenient.with(&names),
            None => lenient,
        };
        match self.mode_of(&read.name, read.queue_type) {
            Mode::Off => lenient.without_targets(),
            Mode::Full | Mode::RejectsOnly => lenient,
        }
    }

    pub(super) fn wanted(&mut self, read: &Read<'_>) -> Wanted {
        let arguments = read.arguments();
        let is_made = generated::is_made(read.declare.queue);
        if is_made {
            // What the name will begin with may not tell which policy of ours the queue will have.
            let start = generated::start(read.declare.arguments, self.peer.version);
            let ours = self.settings.policies.ours();
            if !ours.decide(self.facts().queue(&start, read.queue_type)) {
                let queue = ShortStr::new(start).unwrap_or_default();
                let cause = Fallback::GeneratedName;
                self.turn.event(Event::DeclareLeft { queue, cause });
                return read.wanted_by_name();
            }
        }
        let names = &self.settings.names;
        let fits = |form: &[u8]| {
            let grown = (form.len() + OTHER_TYPE).saturating_sub(read.declare.arguments.len());
            self.fits_frame(read.payload.len() + grown)
        };
        let has_room = |aim: Aim, intake: &ShortStr| {
            let asks = matches!(aim, Aim::Full | Aim::Compare);
            fits(&arguments.rewritten_if_there(intake))
                && (!asks || fits(&arguments.permission_probe()))
        };
        let wanted = self.of_policy(&read.name, read.queue_type, |policy| {
            arguments.wanted(policy, self.settings.mode, names)
        });
        match wanted {
            // The name that the broker generates may fit a policy all the same, by accident.
            Wanted::Nothing if is_made => read.wanted_by_name(),
            // What the broker names is no queue that is there already.
            Wanted::Probe(Aim::Compare, ..) if read.declare.queue.is_empty() => {
                Wanted::Leave(Fallback::NotSupported)
            }
            Wanted::Probe(Aim::Off, ..) if read.declare.queue.is_empty() => Wanted::Nothing,
            Wanted::Probe(aim, _, ref intake) if !has_room(aim, intake) => match aim {
                Aim::Off => Wanted::Nothing,
                Aim::Full | Aim::Compare | Aim::Lenient => Wanted::Leave(Fallback::FrameMax),
            },
            Wanted::Nothing | Wanted::Keep(_) if !self.lenient(read).is_empty() => {
                let aim = match self.mode_of(&read.name, read.queue_type) {
                    Mode::Off => Aim::Off,
                    Mode::Full | Mode::RejectsOnly => Aim::Lenient,
                };
                match (arguments.said(), arguments.intake(names)) {
                    (Some(said), Some(intake)) => Wanted::Probe(aim, said, intake),
                    _ => wanted,
                }
            }
            wanted => wanted,
        }
    }

    /// Whether its queue will have retries, or would have but for its arguments.
    pub(super) fn is_retried(&self, read: &Read<'_>, said: SaidRetries) -> bool {
        let asks = |said| self.facts().comes_back(&read.name, read.queue_type, said);
        asks(said) || asks(SaidRetries::default())
    }

    /// The retry arguments, and the method without those that the broker must not see.
    pub(super) fn retries_of_declare(&self, read: &Read<'_>) -> (SaidRetries, Option<Vec<u8>>) {
        let arguments = read.declare.arguments;
        let said = SaidRetries::of_arguments(arguments);
        if said.is_silent() || self.mode_of(&read.name, read.queue_type) == Mode::Off {
            return Default::default();
        }
        let without = said_retries::without(arguments, read.queue_type);
        (said, without.map(|without| read.payload_with(&without)))
    }
}

impl Declares {
    /// Logs ineffective or harmful retry arguments once per queue.
    pub(super) fn tell_of_retries(&mut self, read: &Read<'_>, line: &mut Line<'_, '_>) {
        let arguments = read.declare.arguments;
        if let Some(problem) = in_vain::goes_with_messages(arguments, read.queue_type)
            && let Some(queue) = self.untold(read, line)
        {
            line.turn.event(Event::GoesWithMessages { queue, problem });
        }
        let delays = |said| {
            let retries = line.facts().retries_for(&read.name, read.queue_type, said);
            retries.is_some_and(|retries| retries.back_off.is_some())
        };
        if let Some(problem) = said_retries::in_vain(arguments, delays)
            && line.mode_of(&read.name, read.queue_type) != Mode::Off
            && let Some(queue) = self.untold(read, line)
        {
            line.turn.event(Event::RetriesInVain { queue, problem });
        }
    }

    /// The queue, if nothing was logged about it yet, as far as remembered.
    fn untold(&mut self, read: &Read<'_>, line: &Line<'_, '_>) -> Option<ShortStr> {
        let most = line.settings.limits.now().max_queues_per_connection;
        let queue =
            ShortStr::copy(read.declare.queue).filter(|_| self.learned().told.len() < most)?;
        self.learned().told.insert(queue.clone()).then_some(queue)
    }
}
