from hypothesis import settings

settings.register_profile("fedsplit", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("fedsplit")
