def equivalent(answer: str, truth: str) -> bool:
    return answer == truth
