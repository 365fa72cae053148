//! goose attacks. In: scenarios, users, an address. Out: an attack that starts all users at once, prints nothing and
//! installs no handler. Knows nothing of schedules or of request contents.

use super::step::DriverError;
use goose::GooseAttack;
use goose::client::GooseClientBuilder;
use goose::config::GooseConfiguration;
use goose::goose::Scenario;

/// Creates an attack without starting it. With `metrics` goose's own metrics count the requests that its client sends.
pub(crate) fn attack(
    host: String,
    users: usize,
    scenario: Scenario,
    metrics: bool,
) -> Result<GooseAttack, DriverError> {
    // Field by field: some are private, so no struct expression can be written.
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(host);
    configuration.users = Some(users);
    configuration.increase_rate = Some("1000000".into());
    configuration.quiet = 2;
    configuration.no_metrics = !metrics;
    // Its metrics are reset once all users are up: without that goose prints a line on stdout.
    configuration.no_transaction_metrics = true;
    configuration.no_scenario_metrics = true;
    configuration.no_print_metrics = true;
    configuration.no_error_summary = true;
    configuration.no_telnet = true;
    GooseAttack::initialize_with_config(configuration)
        // Unused, but otherwise goose creates a client for each user.
        .and_then(|attack| attack.set_client_builder_without_cookies(GooseClientBuilder::new().without_cookies()))
        .map(|attack| attack.register_scenario(scenario))
        .map_err(|error| DriverError::Goose(Box::new(error)))
}
