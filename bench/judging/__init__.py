"""What a model loses: how surprised it is by the recorded answer, after what a policy would have sent.

    sampled = sample_session(trace, sampling)    sampling.py: what each policy sends before an answer
    answers = order_answers(sampled.rows)        answers.py: row by row, answer by answer
    losses = judge_answers(answers, judge)       torch_judge.py, llama_judge.py
    PairedLosses(losses, window).compare()       comparison.py: paired by answer, resampled by session

A policy that leaves out what the answer needed makes the answer less likely, and the judge says by how much.
bench/README.md says what this measure is, and what it is not.
"""
