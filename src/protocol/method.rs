//! Method names of the protocol.

use std::fmt;

macro_rules! methods {
    ($($variant:ident = $name:literal,)*) => {
        /// A method or notification of the protocol; `Other` keeps the name of an unknown one.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $($variant,)*
            Other(Box<str>),
        }

        impl Method {
            pub fn parse(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }

            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }

            /// The protocol's name for the method; `None` for an unknown method.
            pub const fn name(&self) -> Option<MethodName> {
                match self {
                    $(Self::$variant => Some(MethodName::$variant),)*
                    Self::Other(_) => None,
                }
            }
        }

        /// The name of a method that the protocol defines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum MethodName {
            $($variant,)*
        }

        impl MethodName {
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        #[cfg(test)]
        const KNOWN: &[&str] = &[$($name,)*];
    };
}

methods! {
    Initialize = "initialize",
    Discover = "server/discover",
    Listen = "subscriptions/listen",
    TasksGet = "tasks/get",
    TasksUpdate = "tasks/update",
    TasksCancel = "tasks/cancel",
    TasksList = "tasks/list",
    TasksResult = "tasks/result",
    Ping = "ping",
    ToolsList = "tools/list",
    ToolsCall = "tools/call",
    PromptsList = "prompts/list",
    PromptsGet = "prompts/get",
    ResourcesList = "resources/list",
    ResourceTemplatesList = "resources/templates/list",
    ResourcesRead = "resources/read",
    ResourcesSubscribe = "resources/subscribe",
    ResourcesUnsubscribe = "resources/unsubscribe",
    SkillsList = "skills/list",
    CompletionComplete = "completion/complete",
    LoggingSetLevel = "logging/setLevel",
    SamplingCreateMessage = "sampling/createMessage",
    ElicitationCreate = "elicitation/create",
    RootsList = "roots/list",
    Initialized = "notifications/initialized",
    Cancelled = "notifications/cancelled",
    Progress = "notifications/progress",
    LogMessage = "notifications/message",
    ToolsListChanged = "notifications/tools/list_changed",
    PromptsListChanged = "notifications/prompts/list_changed",
    ResourcesListChanged = "notifications/resources/list_changed",
    ResourcesUpdated = "notifications/resources/updated",
    RootsListChanged = "notifications/roots/list_changed",
    SubscriptionsAcknowledged = "notifications/subscriptions/acknowledged",
    TaskStatus = "notifications/tasks/status",
    Tasks = "notifications/tasks",
    ElicitationComplete = "notifications/elicitation/complete",
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_parsing() {
        for name in KNOWN.iter().chain(&["vendor/thing"]) {
            let method = Method::parse(name);
            assert_eq!(method.as_str(), *name);
            let known = method.name().map(MethodName::as_str);
            assert_eq!(known, KNOWN.contains(name).then_some(*name));
        }
        assert_eq!(Method::parse("tools/call"), Method::ToolsCall);
    }
}
