//! Reads the producer's trace from a message. Pure.

use aws_lambda_events::event::sqs::SqsMessage;

/// The producer's place in its trace, from the attribute `AWSTraceHeader`:
/// `Root=1-5759e988-bd862e…;Parent=53995c3f…;Sampled=1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin<'a> {
    epoch: &'a str,
    unique: &'a str,
    parent: &'a str,
    is_sampled: bool,
}

impl<'a> Origin<'a> {
    pub(super) fn of(message: &'a SqsMessage) -> Option<Self> {
        Self::parse(message.attributes.get("AWSTraceHeader")?)
    }

    fn parse(header: &'a str) -> Option<Self> {
        let field = |name: &str| {
            header.split(';').find_map(|part| {
                let (found, value) = part.trim().split_once('=')?;
                (found == name).then_some(value)
            })
        };
        let mut root = field("Root")?.split('-');
        let ("1", epoch, unique, None) = (root.next()?, root.next()?, root.next()?, root.next())
        else {
            return None;
        };
        let parent = field("Parent")?;
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_hex(epoch, 8) && is_hex(unique, 24) && is_hex(parent, 16)).then(|| Self {
            epoch,
            unique,
            parent,
            is_sampled: field("Sampled") == Some("1"),
        })
    }

    /// Writes it as a W3C `traceparent`.
    pub(super) fn traceparent(&self) -> String {
        let flags = u8::from(self.is_sampled);
        format!(
            "00-{}{}-{}-{flags:02x}",
            self.epoch, self.unique, self.parent
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_header_becomes_a_traceparent() {
        let sampled = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
        let expected = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
        assert_eq!(Origin::parse(sampled).unwrap().traceparent(), expected);
        let lineage = "Lineage=a87bd80c:1|68fd508a:5; Parent=53995c3f42cd8ad8; Root=1-5759e988-bd862e3fe1be46a994272793";
        let traceparent = Origin::parse(lineage).unwrap().traceparent();
        assert!(traceparent.ends_with("-00"), "{traceparent}");
    }

    #[test]
    fn what_is_no_trace_header_is_no_link() {
        for header in [
            "",
            "Root=1-5759e988-bd862e3fe1be46a994272793",
            "Root=2-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a99427279;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a994272793-1;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a99427279Z;Parent=53995c3f42cd8ad8",
            "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=secret",
        ] {
            assert_eq!(Origin::parse(header), None, "{header}");
        }
    }
}
