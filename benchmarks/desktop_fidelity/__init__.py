"""Do the windows and the clipboards of a desktop behave as a user of a real desktop expects?"""
