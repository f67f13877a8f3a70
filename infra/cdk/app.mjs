// `cdk deploy` runs it. `-c NAME=VALUE` sets a value.
import { App } from "aws-cdk-lib";
import { PaymentsStack } from "./stack.mjs";

const app = new App();
new PaymentsStack(app, "Payments", {
  // The folder that has the program, named `bootstrap`: what `cargo lambda build` makes.
  program: app.node.tryGetContext("program") ?? "../../target/lambda/payments-worker",
  architecture: app.node.tryGetContext("architecture") ?? "arm64",
  // Set false for a stack to try out.
  deletionProtection: app.node.tryGetContext("deletionProtection") ?? "true",
  alarmTopicArn: app.node.tryGetContext("alarmTopicArn") ?? "",
});
