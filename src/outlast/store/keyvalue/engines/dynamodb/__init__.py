"""DynamoDB engine."""
