"""Every kind of reward source: functions, model directories, judges, rubrics, services, and several in one reward."""
