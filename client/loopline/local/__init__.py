"""A grid on this computer that one program starts and stops: ``loopline local``, ``Executor.local()``, the demo."""
