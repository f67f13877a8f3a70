"""The templates of new functions: what they declare, and the queue's deployed."""
