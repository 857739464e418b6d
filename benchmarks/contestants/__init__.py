"""One program a contestant: it reads its job from the environment, runs it and answers with seconds a round."""
