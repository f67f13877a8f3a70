//! The requests on the wire, one by one.

use std::sync::Mutex;

use serde_json::Value;

use super::Fault;
use super::proxy::Meddler;

/// Keeps each request that is forwarded, as the server gets it.
#[derive(Default)]
pub struct Recorder(Mutex<Vec<(String, Value)>>);

impl Recorder {
    /// The requests of an operation (`GetItem`, say) so far.
    pub fn of(&self, operation: &str) -> Vec<Value> {
        let requests = self.0.lock().expect("not poisoned");
        let wanted = requests.iter().filter(|(name, _)| name == operation);
        wanted.map(|(_, request)| request.clone()).collect()
    }
}

impl Meddler for Recorder {
    fn fault(&self, _: &str, _: &Value) -> Fault {
        Fault::Pass
    }

    fn rewrite(&self, operation: &str, request: Value) -> Value {
        let kept = (operation.to_owned(), request.clone());
        self.0.lock().expect("not poisoned").push(kept);
        request
    }
}
