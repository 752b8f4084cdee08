"""The web service: answers in JSON for raw ids, a page to explore a model, reload without a gap."""
