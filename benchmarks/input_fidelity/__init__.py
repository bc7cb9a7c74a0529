"""Does a desktop's program receive exactly what the actions said, in every GUI toolkit?"""
