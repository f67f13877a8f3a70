//! An execution environment, and what becomes of its events.

use std::time::Duration;

use lambda_simulator::{InvocationBuilder, InvocationStatus, Simulator};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::process::Process;
use super::programs::Version;
use super::{LOOK_AGAIN, PATIENCE};

/// One execution environment: a process, and the Runtime API that it polls. Both end when it is dropped.
pub struct Sandbox {
    pub(super) process: Process,
    pub(super) simulator: Simulator,
    pub(super) timeout: Duration,
    pub(super) version: Version,
}

/// An event on its way.
pub struct Invocation {
    id: String,
    deadline: Instant,
}

/// The result of an event.
#[derive(Debug)]
pub enum Reply {
    Answered(Value),
    Failed(String),
    /// Killed at the deadline.
    TimedOut,
    /// The process ended before it answered.
    Died,
}

impl Reply {
    /// The answer; there must be one.
    pub fn answer(self) -> Value {
        match self {
            Self::Answered(answer) => answer,
            Self::Failed(message) => panic!("the function failed: {message}"),
            Self::TimedOut => panic!("no answer before the deadline"),
            Self::Died => panic!("the process ended without an answer"),
        }
    }
}

impl Sandbox {
    pub fn version(&self) -> Version {
        self.version
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// From the next event on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Delivers an event and waits for what becomes of it, at most until the deadline.
    pub async fn invoke(&mut self, event: Value) -> Reply {
        let invocation = self.begin(event).await;
        self.finish(invocation).await
    }

    /// Delivers an event.
    pub async fn begin(&self, event: Value) -> Invocation {
        self.begin_within(event, self.timeout).await
    }

    /// Delivers an event with its own deadline.
    pub async fn begin_within(&self, event: Value, timeout: Duration) -> Invocation {
        let millis = timeout.as_millis().try_into().expect("short");
        let invocation = InvocationBuilder::new()
            .payload(event)
            .timeout_ms(millis)
            .build()
            .expect("complete");
        let deadline = Instant::now() + timeout;
        let id = self.simulator.enqueue(invocation).await;
        Invocation { id, deadline }
    }

    /// Waits for the reply; kills the process at the deadline, as Lambda does.
    pub async fn finish(&mut self, invocation: Invocation) -> Reply {
        let deadline = invocation.deadline;
        if let Some(reply) = self.reply(&invocation, deadline).await {
            reply
        } else {
            self.kill();
            Reply::TimedOut
        }
    }

    /// Waits for what the caller is told on a Managed Instance: at the deadline that the invocation timed out, which ends
    /// nothing. For many invocations at once.
    pub async fn told(&self, invocation: &Invocation) -> Reply {
        loop {
            if let Some(reply) = self.replied(invocation).await {
                return reply;
            }
            if Instant::now() >= invocation.deadline {
                return Reply::TimedOut;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for the reply of a process that was stopped past its deadline, as a pause of the machine would.
    pub async fn finish_late(&mut self, invocation: Invocation) -> Reply {
        self.reply(&invocation, Instant::now() + PATIENCE)
            .await
            .expect("an answer, however late")
    }

    /// Waits so long for the reply.
    pub async fn finish_within(
        &mut self,
        invocation: &Invocation,
        pause: Duration,
    ) -> Option<Reply> {
        self.reply(invocation, Instant::now() + pause).await
    }

    /// The lines that the process has written since the last call.
    pub fn lines(&mut self) -> String {
        self.process.lines()
    }

    async fn reply(&mut self, invocation: &Invocation, until: Instant) -> Option<Reply> {
        loop {
            // Looked at first: a process that answered and then ended has answered.
            let alive = self.process.is_alive();
            if let Some(reply) = self.replied(invocation).await {
                return Some(reply);
            }
            if !alive {
                return Some(Reply::Died);
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// The reply, if there is one by now.
    async fn replied(&self, invocation: &Invocation) -> Option<Reply> {
        let state = self.simulator.get_invocation_state(&invocation.id).await;
        let state = state.expect("an event that was delivered");
        match state.status {
            InvocationStatus::Success => state
                .response
                .map(|response| Reply::Answered(response.payload)),
            InvocationStatus::Error => state.error.map(|error| Reply::Failed(error.error_message)),
            _ => None,
        }
    }

    /// SIGTERM, as Lambda sends it to an environment that it no longer needs.
    pub fn tell_to_end(&self) {
        kill(self.pid(), Signal::SIGTERM).expect("a process to end");
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(&mut self) {
        let patience = Instant::now() + PATIENCE;
        while self.process.is_alive() {
            assert!(Instant::now() < patience, "it goes on");
            sleep(LOOK_AGAIN).await;
        }
    }

    /// `kill -9`: no destructor runs, nothing is released.
    pub fn kill(&mut self) {
        self.process.end();
    }

    /// Pauses the process where it is, as a frozen virtual machine would.
    pub fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("a process to stop");
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("a process to continue");
    }
}
