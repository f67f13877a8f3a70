//! What a worker does, as the engine does it: decide and set, run, complete or release.

use lambda_idempotency::protocol::{Asking, Crashed, Decision, Rules, Settled, decide, settle};
use lambda_idempotency::record::{
    Completion, Found, NewClaim, Owner, Record, Release, Status, StoredOutcome, Takeover,
};
use lambda_idempotency::{Fingerprint, RecordId};

use crate::mutation::Mutation;
use crate::table::Reply;
use crate::world::{Answer, Hold, LEASE, MARGIN, Phase, RETENTION, World, Write};

/// As the engine has it.
const MAX_ROUNDS: u8 = 3;

/// What all workers have in common.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub ids: Vec<RecordId>,
    pub mutation: Mutation,
    /// Whether an effect commits together with the record.
    pub transactional: bool,
    /// Whether no two clocks differ by more than the margin.
    pub clocks_agree: bool,
}

pub fn rules() -> Rules {
    Rules {
        crashed: Crashed::RunAgain,
        max_attempts: None,
        skew_margin: MARGIN,
    }
}

impl Protocol {
    /// A delivery arrives.
    pub fn start(&self, world: &mut World, w: usize) {
        let worker = &mut world.workers[w];
        worker.deliveries -= 1;
        if self.mutation != Mutation::OwnerReused || worker.owners == 0 {
            worker.owners += 1;
        }
        let owner = Owner::from_stored(format!("w{w}.{}", worker.owners));
        self.decide(world, w, &owner, None, 0);
    }

    fn fingerprint(world: &World, w: usize) -> Fingerprint {
        Fingerprint::bytes(&[world.workers[w].payload])
    }

    fn decide(
        &self,
        world: &mut World,
        w: usize,
        owner: &Owner,
        found: Option<&Found>,
        rounds: u8,
    ) {
        let now = world.clock(&world.workers[w]);
        let fingerprint = Self::fingerprint(world, w);
        let asking = Asking {
            owner,
            fingerprint: Some(&fingerprint),
            now,
        };
        let phase = match decide(found, asking, &rules()) {
            Decision::Create | Decision::TakeOver { .. } if rounds == MAX_ROUNDS => {
                Phase::Answered(Answer::Refused)
            }
            Decision::Create => {
                let claim = self.claim(world, w, owner, 1);
                sent(Write::Create(claim, false), rounds + 1)
            }
            Decision::TakeOver {
                seen,
                mode,
                attempt,
            } => {
                let bound = found
                    .and_then(|found| found.content.as_ref().ok())
                    .is_some_and(|record| record.fingerprint.is_some());
                let claim = self.claim(world, w, owner, attempt);
                let keeps = mode == Takeover::Resume && bound;
                sent(
                    Write::TakeOver(seen.clone(), claim, mode, keeps),
                    rounds + 1,
                )
            }
            Decision::Mine(record) => {
                let hold = Hold {
                    owner: owner.clone(),
                    until: record.lease.unwrap_or_default() - MARGIN,
                    keeps_fingerprint: record.attempt > 1,
                };
                return self.run(world, w, hold);
            }
            Decision::Replay(record) => {
                Self::check_replay(world, w, record);
                Phase::Answered(Answer::Replayed)
            }
            _ => Phase::Answered(Answer::Refused),
        };
        world.workers[w].phase = phase;
    }

    fn claim(&self, world: &World, w: usize, owner: &Owner, attempt: u32) -> NewClaim {
        let worker = &world.workers[w];
        let now = world.clock(worker);
        let lease = match self.mutation {
            Mutation::LeaseWithoutMargin => now + LEASE,
            _ => now + LEASE + MARGIN,
        };
        let expiration = match self.mutation {
            Mutation::ExpiresBeforeItsLease => now.ceil_seconds(),
            _ => (now + RETENTION).max(lease + MARGIN).ceil_seconds(),
        };
        NewClaim {
            id: self.ids[worker.key].clone(),
            owner: owner.clone(),
            fingerprint: Some(Self::fingerprint(world, w)),
            attempt,
            lease,
            expiration,
            started_at: now,
        }
    }

    /// A replay gives what stands in the record, to whoever sent that payload.
    fn check_replay(world: &mut World, w: usize, record: &Record) {
        let key = world.workers[w].key;
        let known = world.outcome[key].as_ref();
        let stands = known.is_some_and(|known| known.outcome == record.outcome);
        let fingerprint = Self::fingerprint(world, w);
        // A record that nothing took effect in is bound to no payload.
        let differs = record
            .fingerprint
            .as_ref()
            .is_some_and(|bound| *bound != fingerprint);
        if !stands || differs {
            world.note(
                "6: a replay returns exactly the stored outcome, never for another fingerprint",
            );
        }
    }

    /// The claim is there: is there time left?
    fn run(&self, world: &mut World, w: usize, hold: Hold) {
        let worker = &world.workers[w];
        if world.clock(worker) >= hold.until {
            world.workers[w].phase = self.release(world, w, &hold, None);
            return;
        }
        let key = worker.key;
        let overlaps = world.workers.iter().enumerate().any(|(other, beside)| {
            let Phase::Running { hold } = &beside.phase else {
                return false;
            };
            other != w && beside.key == key && world.clock(beside) < hold.until
        });
        if overlaps && self.clocks_agree {
            world.note("9: no two run at once while the first has time");
        }
        world.workers[w].phase = Phase::Running { hold };
    }

    /// The handler returns.
    pub fn end(&self, world: &mut World, w: usize, succeeds: bool) {
        let Phase::Running { hold } = world.workers[w].phase.clone() else {
            return;
        };
        if !succeeds {
            world.workers[w].phase = self.release(world, w, &hold, None);
            return;
        }
        let worker = &world.workers[w];
        let now = world.clock(worker);
        let completion = Completion {
            id: self.ids[worker.key].clone(),
            status: Status::Completed,
            outcome: StoredOutcome::Inline(hold.owner.as_str().to_owned()),
            owner: hold.owner,
            completed_at: now,
            expiration: (now + RETENTION).ceil_seconds(),
        };
        let write = if self.transactional {
            Write::Commit(completion)
        } else {
            Write::Complete(completion)
        };
        world.workers[w].phase = sent(write, 0);
    }

    fn release(&self, world: &World, w: usize, hold: &Hold, proves: Option<Completion>) -> Phase {
        let release = Release {
            id: self.ids[world.workers[w].key].clone(),
            tombstone: Owner::from_stored(format!("{}+", hold.owner.as_str())),
            owner: hold.owner.clone(),
            last_error: None,
            forget_fingerprint: !hold.keeps_fingerprint,
        };
        Phase::Sent {
            write: Box::new(Write::Release(release)),
            rounds: 0,
            proves: proves.map(Box::new),
        }
    }

    /// An answer comes back.
    pub fn receive(&self, world: &mut World, w: usize, reply: Reply) {
        let Phase::Sent {
            write,
            rounds,
            proves,
        } = world.workers[w].phase.clone()
        else {
            return;
        };
        match (*write, reply) {
            (Write::Create(claim, keeps) | Write::TakeOver(_, claim, _, keeps), Reply::Applied) => {
                let hold = Hold {
                    until: claim.lease
                        - if self.mutation == Mutation::LeaseWithoutMargin {
                            std::time::Duration::ZERO
                        } else {
                            MARGIN
                        },
                    owner: claim.owner,
                    keeps_fingerprint: keeps,
                };
                self.run(world, w, hold);
            }
            (Write::Create(claim, _) | Write::TakeOver(_, claim, _, _), Reply::Refused(found)) => {
                self.decide(world, w, &claim.owner, found.as_ref(), rounds);
            }
            (Write::Complete(_) | Write::Commit(_), Reply::Applied) => {
                world.workers[w].phase = Phase::Answered(Answer::Executed);
            }
            (Write::Complete(sent) | Write::Commit(sent), Reply::Refused(found)) => {
                let answer = self.settled(world, w, &sent, found.as_ref());
                world.workers[w].phase = Phase::Answered(answer);
            }
            (Write::Release(release), reply) => {
                let answer = match (proves, reply) {
                    (None, _) => Answer::Failed,
                    (Some(sent), reply) => Self::proven(world, w, &sent, &release, reply),
                };
                world.workers[w].phase = Phase::Answered(answer);
            }
        }
    }

    /// A completion that met something else.
    fn settled(
        &self,
        world: &mut World,
        w: usize,
        sent: &Completion,
        found: Option<&Found>,
    ) -> Answer {
        let key = world.workers[w].key;
        let fingerprint = Self::fingerprint(world, w);
        let record = found.and_then(|found| found.content.as_deref().ok());
        let believes = self.mutation == Mutation::BelievesWithoutComparing
            && record.is_some_and(|record| {
                record.owner.as_ref() == Some(&sent.owner) && record.status == Status::Completed
            });
        let settled = settle(found, sent, Some(&fingerprint));
        let mine = world.outcome[key]
            .as_ref()
            .is_some_and(|known| known.owner == sent.owner);
        if believes || matches!(settled, Settled::Recorded) {
            if !mine {
                world.note("7: a completion counts as mine only if it is");
            }
            return Answer::Executed;
        }
        if mine {
            world.note("7: a write that applied is not denied");
        }
        match settled {
            Settled::Superseded(_) => Answer::Replayed,
            _ => Answer::LeaseLost,
        }
    }

    /// Whether a commit without a reply took effect: only the fence can tell.
    fn proven(
        world: &mut World,
        w: usize,
        sent: &Completion,
        release: &Release,
        reply: Reply,
    ) -> Answer {
        let found = match reply {
            Reply::Applied => None,
            Reply::Refused(found) => Some(found),
        };
        let released = found.as_ref().is_none_or(|found| {
            found.as_ref().is_some_and(|found| {
                found.version.owner.as_deref() == Some(release.tombstone.as_str())
            })
        });
        let key = world.workers[w].key;
        if released {
            if world.booked[key].contains(&sent.owner) {
                world.note("5: a release that applied proves that nothing was committed");
            }
            return Answer::Failed;
        }
        match settle(found.flatten().as_ref(), sent, None) {
            Settled::Recorded => Answer::Executed,
            _ => Answer::Unknown,
        }
    }

    /// The caller stops waiting for an answer.
    pub fn give_up(&self, world: &mut World, w: usize) {
        let Phase::Sent { write, .. } = world.workers[w].phase.clone() else {
            return;
        };
        let hold = |owner: &Owner| Hold {
            owner: owner.clone(),
            until: world.clock(&world.workers[w]),
            keeps_fingerprint: true,
        };
        world.workers[w].phase = match &*write {
            Write::Create(claim, _) | Write::TakeOver(_, claim, _, _) => {
                self.release(world, w, &hold(&claim.owner), None)
            }
            Write::Commit(sent) => self.release(world, w, &hold(&sent.owner), Some(sent.clone())),
            Write::Complete(_) => Phase::Answered(Answer::Unknown),
            Write::Release(_) => Phase::Answered(Answer::Failed),
        };
    }

    /// Liveness: when the trouble is over and the leases have run out, a patient caller gets each key to its end.
    pub fn recovers(&self, world: &World) -> bool {
        (0..world.table.len()).all(|key| {
            // Whichever payload the key is bound to.
            (0..2).any(|payload| {
                let mut quiet = world.clone();
                quiet.time += 1_000;
                let w = quiet.workers.len();
                let mut patient = quiet.workers[0].clone();
                (
                    patient.key,
                    patient.payload,
                    patient.deliveries,
                    patient.phase,
                ) = (key, payload, 8, Phase::Idle);
                quiet.workers.push(patient);
                while quiet.workers[w].deliveries > 0 {
                    self.start(&mut quiet, w);
                    loop {
                        match quiet.workers[w].phase.clone() {
                            Phase::Sent { write, .. } => {
                                let reply = quiet.apply(key, &write, self.mutation);
                                self.receive(&mut quiet, w, reply);
                            }
                            Phase::Running { .. } => self.end(&mut quiet, w, true),
                            Phase::Answered(Answer::Executed | Answer::Replayed) => return true,
                            Phase::Answered(_) | Phase::Idle => break,
                        }
                    }
                }
                false
            })
        })
    }
}

fn sent(write: Write, rounds: u8) -> Phase {
    Phase::Sent {
        write: Box::new(write),
        rounds,
        proves: None,
    }
}
