//! How much of everything there was.

/// For the report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub messages: usize,
    /// Of these, dead letters that a client gave another life.
    pub again: usize,
    /// Copies for the queues of a `CC` or `BCC`.
    pub carbon: usize,
    pub dead_letters: usize,
    /// Of these, those that died in another life.
    pub died_again: usize,
    pub duplicates: usize,
    pub parked: usize,
    /// Sent away for a retry, come back, dead as they came back as often as they may.
    pub away: usize,
    pub back: usize,
    pub over: usize,
    /// Taken back from clients that held them for too long.
    pub overdue: usize,
    /// Delayed publishes.
    pub arrived: usize,
    /// Not sent away, as that came to nothing.
    pub refused: usize,
    /// Returned by proxies that do not know the TTL of the queue.
    pub without_ttl: usize,
    /// Settings that a proxy was told of by a SIGHUP; dead letters that went elsewhere than by the first settings; those that raced with a change.
    pub reloads: usize,
    pub redirected: usize,
    pub raced: usize,
    /// Returns for which other retries held than at first.
    pub otherwise: usize,
    /// Declares that differ from their queue and were answered; those that their record does not say; those that no answer was for.
    pub redeclares: usize,
    pub unwritten: usize,
    pub spoiled: usize,
    /// Entries of the record, and how often one was read.
    pub entries: usize,
    pub learned: usize,
    /// Dead letters that went elsewhere than by the first declare; those that may have gone to several targets.
    pub moved: usize,
    pub overtaken: usize,
    /// Clients that declare nothing; changes of the broker's policies; rejects that were left to it, as somebody had said.
    pub strangers: usize,
    pub policies: usize,
    pub left: usize,
    /// Redrives and purges; those that came to their end; those that could not go on.
    pub walks: usize,
    pub completed: usize,
    pub failed: usize,
    /// Messages that they sent back, and removed.
    pub redriven: usize,
    pub purged: usize,
    /// Of these walks, those after which the order of what stayed could be judged.
    pub in_order: usize,
    /// Alterations of queues; those that were done, and not; those whose process was killed; orders that others took part in, or finished.
    pub alterations: usize,
    pub altered: usize,
    pub unaltered: usize,
    pub killed: usize,
    pub attended: usize,
    /// Messages that they moved aside, or back.
    pub set_aside: usize,
    /// In milliseconds: the longest pause, as the proxy says; and how long clients of a proxy waited for one, at most.
    pub pause: usize,
    pub held: usize,
}

impl Count {
    pub(crate) fn add(&mut self, other: &Count) {
        self.messages += other.messages;
        self.again += other.again;
        self.carbon += other.carbon;
        self.dead_letters += other.dead_letters;
        self.died_again += other.died_again;
        self.duplicates += other.duplicates;
        self.parked += other.parked;
        self.away += other.away;
        self.back += other.back;
        self.over += other.over;
        self.overdue += other.overdue;
        self.arrived += other.arrived;
        self.refused += other.refused;
        self.without_ttl += other.without_ttl;
        self.reloads += other.reloads;
        self.redirected += other.redirected;
        self.raced += other.raced;
        self.otherwise += other.otherwise;
        self.redeclares += other.redeclares;
        self.unwritten += other.unwritten;
        self.spoiled += other.spoiled;
        self.entries += other.entries;
        self.learned += other.learned;
        self.moved += other.moved;
        self.overtaken += other.overtaken;
        self.strangers += other.strangers;
        self.policies += other.policies;
        self.left += other.left;
        self.walks += other.walks;
        self.completed += other.completed;
        self.failed += other.failed;
        self.redriven += other.redriven;
        self.purged += other.purged;
        self.in_order += other.in_order;
        self.alterations += other.alterations;
        self.altered += other.altered;
        self.unaltered += other.unaltered;
        self.killed += other.killed;
        self.attended += other.attended;
        self.set_aside += other.set_aside;
        self.pause = self.pause.max(other.pause);
        self.held = self.held.max(other.held);
    }
}
