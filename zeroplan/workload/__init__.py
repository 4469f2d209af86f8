"""What is counted: a model as an ordered list of operations with their parameters and costs."""
