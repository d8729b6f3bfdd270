"""A simulated device that notes when it gets buffers that it still uses, or when a model that it runs is freed."""

from __future__ import annotations

from hami_accel.sim import SimDevice


class CheckedDevice(SimDevice):
    """Keeps the function-calls that have not answered. `problems` is what an accelerator would not survive."""

    def __init__(self, **settings) -> None:
        super().__init__(**settings)
        self.problems: list[str] = []

    def load(self, source, options):
        model, unanswered = super().load(source, options), {}
        submit = model.submit

        def checked_submit(buffers, segment, core, priority):
            if model_closed:
                self.problems.append("a function-call after the model was freed")
            if id(buffers) in unanswered:
                self.problems.append("buffers in use were given to another function-call")
            call = submit(buffers, segment, core, priority)
            wait = call.wait

            def checked_wait(timeout):
                try:
                    answered = wait(timeout)
                except Exception:  # an answer too
                    unanswered.pop(id(buffers), None)
                    raise
                if answered:
                    unanswered.pop(id(buffers), None)
                return answered

            unanswered[id(buffers)] = buffers
            call.wait = checked_wait
            return call

        def checked_close():
            model_closed.append(True)
            if unanswered:
                self.problems.append("a model was freed that the device still runs")

        model_closed: list[bool] = []
        model.submit, model.close = checked_submit, checked_close
        return model
