"""The AWS CDK example, deployed."""
