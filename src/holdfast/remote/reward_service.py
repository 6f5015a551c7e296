"""What everybody who asks a reward service has to know of it."""

# The environment variable that holds its token, where it wants one.
TOKEN = "HOLDFAST_REWARD_TOKEN"
LONGEST_REPLY = 64 << 20
