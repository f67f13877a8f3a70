//! Sorts the messages of a batch into ordered groups. Pure.

use crate::batch::Source;

/// Selects the order in which messages run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// Messages run as their source promises (default): as [`Groups`](Self::Groups) where it orders
    /// them, else as [`Unordered`](Self::Unordered).
    #[default]
    BySource,
    /// Messages run side by side.
    Unordered,
    /// The messages of one group run one after the other, and groups side by side. After a message
    /// that is reported, no later one of its group runs, and all of them are reported.
    Groups,
    /// Messages run one after the other. After a message that is reported, no later one of the
    /// batch runs, and all of them are reported.
    Batch,
}

impl Order {
    /// Names the ordered group of each message, where it has one.
    pub(super) fn groups<S: Source>(self, messages: &[S::Record]) -> Vec<Option<String>> {
        let group = |message| self.group_of::<S>(message);
        messages.iter().map(group).collect()
    }

    fn group_of<S: Source>(self, message: &S::Record) -> Option<String> {
        let group = || S::order_key(message).unwrap_or_default().to_owned();
        match self {
            Self::BySource => S::is_ordered(message).then(group),
            Self::Unordered => None,
            Self::Groups => Some(group()),
            Self::Batch => Some(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lambda_events::event::sqs::SqsMessage;

    use super::*;
    use crate::sqs::Sqs;

    fn message(queue: &str, group: Option<&str>) -> SqsMessage {
        let mut message = SqsMessage::default();
        message.event_source_arn = Some(format!("arn:aws:sqs:eu-central-1:123456789012:{queue}"));
        let group = group.map(|group| ("MessageGroupId".to_owned(), group.to_owned()));
        message.attributes = group.into_iter().collect();
        message
    }

    #[test]
    fn a_message_is_in_the_group_that_its_source_names_where_groups_are_ordered() {
        let messages = [
            message("payments.fifo", Some("a")),
            message("payments", Some("b")),
            message("payments", None),
        ];
        for (order, expected) in [
            (Order::BySource, [Some("a"), None, None]),
            (Order::Unordered, [None; 3]),
            (Order::Groups, [Some("a"), Some("b"), Some("")]),
            (Order::Batch, [Some(""); 3]),
        ] {
            let groups = order.groups::<Sqs>(&messages);
            let groups: Vec<_> = groups.iter().map(Option::as_deref).collect();
            assert_eq!(groups, expected, "{order:?}");
        }
    }
}
