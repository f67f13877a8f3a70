//! Writes of several connections to few records at once: some order of them explains every answer.

use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;
use lambda_idempotency::protocol::record::{Found, Record, RecordWrite};
use lambda_idempotency::protocol::transition;
use lambda_idempotency::store::{Answer, Store, StoreError};

use super::draw::{Kind, Sequence};
use super::{id, sequences, soon};
use crate::support::store;

const WRITERS: usize = 4;
const WRITES: usize = 5;
/// The records of a round, which each group of writes has all of.
const IDS: usize = 2;

/// The writes that one writer sent to one record, and their answers.
type Story = Vec<(RecordWrite, Answer)>;

/// Looks for an order of the stories that gives these answers, each story's own order kept.
fn explains(stories: &[Story], end: Option<&Record>) -> bool {
    let mut known = HashSet::new();
    let mut open = vec![(vec![0; stories.len()], None::<Record>)];
    while let Some((places, record)) = open.pop() {
        if !known.insert((places.clone(), record.clone())) {
            continue;
        }
        let mut at_end = true;
        for (writer, story) in stories.iter().enumerate() {
            let Some((write, answer)) = story.get(places[writer]) else {
                continue;
            };
            at_end = false;
            let left = transition(record.as_ref(), write);
            let fits = match (answer, &left) {
                (Answer::Applied(None), Some(_)) => true,
                (Answer::Applied(found), Some(left)) => {
                    *found == Some(Found::readable(left.clone()))
                }
                (Answer::Refused(met), None) => *met == record.clone().map(Found::readable),
                _ => false,
            };
            if fits {
                let mut places = places.clone();
                places[writer] += 1;
                open.push((places, left.or_else(|| record.clone())));
            }
        }
        if at_end && record.as_ref() == end {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_at_once_have_an_order() {
    let (sequences, seed) = sequences();
    let rounds = sequences / 200;
    let store = Arc::new(store().await);
    let ids = super::ids();
    for round in 0..rounds {
        let of_round = [(); IDS].map(|()| id(&ids));
        let writers: Vec<_> = (0..WRITERS as u64)
            .map(|writer| {
                let (store, of_round) = (Arc::clone(&store), of_round.clone());
                let mut rng = Rng::with_seed(seed ^ (round << 8) ^ writer);
                tokio::spawn(async move {
                    let mut stories = [(); IDS].map(|()| Story::new());
                    let mut known = of_round.map(Sequence::new);
                    for _ in 0..WRITES {
                        let mut writes: Vec<_> = known
                            .iter()
                            .map(|one| one.next(&mut rng, &Kind::ALL))
                            .collect();
                        // Two groups that name the same records the other way round.
                        let turned = rng.bool();
                        if turned {
                            writes.reverse();
                        }
                        let mut answers = store.write_all(&writes, soon()).await;
                        if turned {
                            writes.reverse();
                            answers.reverse();
                        }
                        for (place, (write, answer)) in writes.into_iter().zip(answers).enumerate()
                        {
                            let answer = match answer {
                                Err(StoreError::NotSent) => store.write(&write, soon()).await,
                                answer => answer,
                            };
                            let answer = answer.expect("an answer");
                            let latest = match &answer {
                                Answer::Refused(met) => met.as_ref().map(record),
                                Answer::Applied(_) => {
                                    let model = known[place].model.clone();
                                    transition(model.as_ref(), &write).or(model)
                                }
                            };
                            if let Some(latest) = latest {
                                known[place].note(latest);
                            }
                            known[place].sent.push(write.clone());
                            stories[place].push((write, answer));
                        }
                    }
                    stories
                })
            })
            .collect();
        let mut stories = [(); IDS].map(|()| Vec::new());
        for writer in writers {
            for (of_id, story) in stories.iter_mut().zip(writer.await.unwrap()) {
                of_id.push(story);
            }
        }
        for (id, stories) in of_round.iter().zip(stories) {
            let end = store.load(id, soon()).await.unwrap();
            let end = end.as_ref().map(record);
            assert!(
                explains(&stories, end.as_ref()),
                "SEQUENCES_SEED={seed}, round {round}: no order explains {stories:#?}, which left {end:#?}"
            );
        }
    }
}

fn record(found: &Found) -> Record {
    *found.content.clone().expect("a readable record")
}
